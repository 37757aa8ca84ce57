"""`minedraft simulate`: what a load would do on the scheduler that serves, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from minedraft.admin import Span
from minedraft.cli.options import err, out
from minedraft.cli.timeline import write_picture
from minedraft.errors import ConfigError
from minedraft.plans import MAX_BATCHES, MAX_DRAFT_TOKENS, MAX_ROWS
from minedraft.sim.bench_costs import costs_of
from minedraft.sim.bench_file import BenchMode, read_bench
from minedraft.sim.costs_file import read_costs
from minedraft.sim.load import MAX_RATE, MAX_REQUESTS, steady
from minedraft.sim.outputs import MAX_AUC, MAX_AUTOCORRELATION, MAX_SPREAD, AcceptanceModel
from minedraft.sim.replay import ALL_CORES
from minedraft.sim.replay import replay as run_replay
from minedraft.sim.report import Report, report
from minedraft.sim.setup import Setup
from minedraft.sim.simulation import Simulation
from minedraft.sim.step_costs import FlatCosts, LinearCosts, StepCosts
from minedraft.sim.trace_file import read_trace
from minedraft.timeline.window import full_steps, last_steps
from minedraft.types import ASSIGNMENTS, MAX_MODEL_LEN, SHAPES, Mode

_MAX_MS = 1e6
_PICTURE_STEPS = 16
_TRIAL_S = 10.0
"""As `minedraft serve` spends at its start."""


def simulate(
    bench: Annotated[
        Path | None,
        typer.Option("--from", help="Replay what `minedraft bench --json` wrote here."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="CSV of arrivals: TIMESTAMP, ContextTokens, GeneratedTokens."),
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help="Costs of steps, as a cost cache holds them.")
    ] = None,
    batches: Annotated[
        int | None, typer.Option(min=1, max=MAX_BATCHES, help="Batches in rotation.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, max=MAX_ROWS, help="Most requests per batch (m).")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=0, max=MAX_DRAFT_TOKENS, help="Draft tokens per step.")
    ] = None,
    shape: Annotated[
        str,
        typer.Option(help="auto: the coordinator chooses within these numbers. fixed: these."),
    ] = "fixed",
    num_drafters: Annotated[
        int, typer.Option("--drafters", min=0, max=MAX_BATCHES, help="Drafters.")
    ] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures here.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the rotation here.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    requests: Annotated[
        int | None, typer.Option(min=1, max=MAX_REQUESTS, help="Requests; of a trace, the first.")
    ] = None,
    prompt_tokens: Annotated[
        int, typer.Option(min=1, max=MAX_MODEL_LEN, help="Tokens per prompt, without a trace.")
    ] = 128,
    output_tokens: Annotated[
        int, typer.Option(min=1, max=MAX_MODEL_LEN, help="Output tokens, without a trace.")
    ] = 64,
    rate: Annotated[
        float | None,
        typer.Option(max=MAX_RATE, help="Requests per second (Poisson). Default: all at once."),
    ] = None,
    rate_scale: Annotated[float, typer.Option(help="Times as fast as the trace says.")] = 1.0,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_REQUESTS, help="Most requests under way: a closed loop."),
    ] = None,
    aborts: Annotated[
        float, typer.Option(min=0, max=1, help="Share of requests whose caller leaves.")
    ] = 0.0,
    verify_ms: Annotated[
        float | None, typer.Option(min=0, max=_MAX_MS, help="Every verify step takes this.")
    ] = None,
    draft_ms: Annotated[
        float | None, typer.Option(min=0, max=_MAX_MS, help="Every draft step takes this.")
    ] = None,
    hop_ms: Annotated[
        float, typer.Option(min=0, max=_MAX_MS, help="A message between services.")
    ] = 0.3,
    acceptance: Annotated[
        str,
        typer.Option(
            help="Chance of the first, second, ... draft, with commas; the last holds on."
        ),
    ] = "",
    spread: Annotated[
        float, typer.Option(min=0, max=MAX_SPREAD, help="Of requests, in log-odds.")
    ] = 0.0,
    autocorrelation: Annotated[
        float, typer.Option(min=0, max=MAX_AUTOCORRELATION, help="Of neighbouring positions.")
    ] = 0.0,
    auc: Annotated[
        float,
        typer.Option(min=0.5, max=MAX_AUC, help="Of scores, for whether a draft stands."),
    ] = 0.75,
    max_steps: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="End after so many verify steps.")
    ] = 1_000_000,
    num_blocks: Annotated[
        int, typer.Option(min=1, max=2**24, help="KV blocks of the verifier.")
    ] = 8192,
    assignment: Annotated[
        str, typer.Option(help="Who joins which batch: balanced, or paper (MineDraft's rules).")
    ] = "balanced",
    prefix_cache: Annotated[
        bool, typer.Option(help="Compute what prompts have in common at their beginning once.")
    ] = True,
) -> None:
    """Simulate a load on the coordinator's own scheduler, in virtual time, without models."""
    modes = read_bench(bench) if bench is not None else {}
    setup = Setup(
        hop_ns=round(hop_ms * 1e6),
        link_ns=round(hop_ms * 1e6),
        num_drafters=num_drafters,
        num_blocks=num_blocks,
        prefix_cache=prefix_cache,
        assignment=_word("assignment", assignment, ASSIGNMENTS),
        trial_s=_TRIAL_S if _word("shape", shape, SHAPES) == "auto" else 0.0,
        seed=seed,
    )
    asks_for_more = shape == "auto" or any(
        given is not None for given in (batches, batch, k, trace, requests, rate, concurrency)
    )
    if modes and not asks_for_more:
        _replay(modes, setup, json_file, svg)
        return
    setup = replace(
        setup,
        mode=Mode(2 if batches is None else batches, batch or 8, 4 if k is None else k, shape),
        costs=_costs(modes, costs, verify_ms, draft_ms),
        acceptance=replace(_acceptance(modes, acceptance, spread, autocorrelation), auc=auc),
    )
    if trace is not None:
        load = read_trace(trace, limit=requests, rate_scale=rate_scale, concurrency=concurrency)
    else:
        load = steady(
            requests or 4 * setup.mode.num_slots,
            prompt_tokens,
            output_tokens,
            rate=rate,
            concurrency=concurrency,
            abort_share=aborts,
            seed=seed,
        )
    simulation = Simulation(setup, load)
    simulation.run(max_steps=max_steps)
    found = report(simulation)
    out.print(_figures(found))
    write_json(json_file, found.to_json())
    _draw(svg, simulation.timeline.spans(), setup.mode)


def _replay(
    modes: Mapping[str, BenchMode], setup: Setup, json_file: Path | None, svg: Path | None
) -> None:
    """Simulate each measurement of a bench, and show both."""
    replays = run_replay(modes, setup)
    table = Table(title="simulated over measured", title_justify="left")
    for column in ("", "tokens/s", "simulated", "ratio", "step, ms", "simulated", "ratio"):
        table.add_column(column, justify="right")
    for name, each in replays.items():
        steady_part = each.simulated.steady
        table.add_row(
            name,
            f"{each.measured.tokens_per_s:.1f}",
            f"{steady_part.tokens_per_s:.1f}",
            f"{each.tokens_over:.2f}",
            f"{each.measured.step_ms:.1f}",
            f"{steady_part.step_ms:.1f}",
            f"{each.step_over:.2f}",
        )
    out.print(table)
    write_json(json_file, {name: each.to_json() for name, each in replays.items()})
    last = list(replays.values())[-1]
    _draw(svg, last.spans, last.measured.mode)


def _costs(
    modes: Mapping[str, BenchMode],
    path: Path | None,
    verify_ms: float | None,
    draft_ms: float | None,
) -> StepCosts:
    """Choose the costs of steps: said here, of a file, of a bench, or made up."""
    if (verify_ms is None) != (draft_ms is None):
        raise ConfigError("give both --verify-ms and --draft-ms, or neither")
    given = [verify_ms is not None, path is not None]
    if sum(given) > 1:
        raise ConfigError("give --costs, or --verify-ms and --draft-ms, not both")
    if verify_ms is not None and draft_ms is not None:
        return FlatCosts(verify_ms * 1e6, draft_ms * 1e6)
    if path is not None:
        return read_costs(path)
    shared = [mode for name, mode in modes.items() if name != ALL_CORES]
    return costs_of(shared) if shared else LinearCosts()


def _word(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise ConfigError(f"{name}={value[:40]!r}: want one of {', '.join(known)}")
    return value


def _acceptance(
    modes: Mapping[str, BenchMode], text: str, spread: float, autocorrelation: float
) -> AcceptanceModel:
    if not text and modes:
        longest = max(modes.values(), key=lambda mode: mode.mode.num_draft_tokens)
        return replace(longest.acceptance, spread=spread, autocorrelation=autocorrelation)
    try:
        by_position = tuple(float(each) for each in text.split(",")) if text else (0.7,)
    except ValueError:
        raise ConfigError(f"acceptance={text[:40]!r}: want numbers from 0 to 1") from None
    return AcceptanceModel(by_position, spread, autocorrelation)


def _figures(found: Report) -> Table:
    """Show one simulation, a figure per line."""
    table = Table(title=f"simulated: {found.shape}", title_justify="left", show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    part = found.steady
    ended = ", ".join(f"{count} {reason}" for reason, count in found.finished.items())
    for label, value in (
        ("requests", f"{found.num_requests} ({ended or 'none ended'})"),
        ("refused", f"{found.num_refused}"),
        ("virtual time, s", f"{found.duration_s:.2f}"),
        ("tokens/s, whole run", f"{found.tokens_per_s:.1f}"),
        ("tokens/s, full steps", f"{part.tokens_per_s:.1f}"),
        ("tokens per row and step", f"{found.tokens_per_row_step:.2f}"),
        ("acceptance rate", f"{found.acceptance_rate:.1%}"),
        ("V: verify, ms", f"{part.verify_ms:.1f}"),
        ("t: draft, ms", f"{part.draft_ms:.1f}"),
        ("step, ms", f"{part.step_ms:.1f}"),
        ("verifier busy", f"{found.verifier_busy:.0%}"),
        ("drafters busy", f"{found.drafters_busy:.0%}"),
        ("TTFT p50 / p99, ms", f"{found.ttft_ms_p50:.0f} / {found.ttft_ms_p99:.0f}"),
        ("TPOT p50, ms", f"{found.tpot_ms_p50:.1f}"),
        ("E2E p50 / p99, ms", f"{found.e2e_ms_p50:.0f} / {found.e2e_ms_p99:.0f}"),
        ("longest gap, ms", f"{found.longest_gap_ms:.0f}"),
        ("preemptions", f"{found.num_preemptions}"),
        ("shape at the end", f"{found.last_shape}; {found.num_shape_switches} switches"),
        ("steps in turns", f"{found.num_fallback_steps} of {found.num_rotating_steps}"),
    ):
        table.add_row(label, value)
    return table


def _draw(path: Path | None, spans: Sequence[Span], mode: Mode) -> None:
    if path is not None:
        shown = full_steps(spans, _PICTURE_STEPS, num_rows=mode.max_batch_size)
        if sum(span.lane == "verify" for span in shown) < _PICTURE_STEPS:
            shown = last_steps(spans, _PICTURE_STEPS)
        write_picture(path, shown, mode, subtitle="simulated")
        err.print(f"picture: {path}", soft_wrap=True)


def write_json(path: Path | None, figures: Mapping[str, Any]) -> None:
    """Write figures as JSON, and say where; None: nothing.

    Raises:
        ConfigError: the file cannot be written.
    """
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"json={str(path)!r}: {failure.strerror}") from None
    err.print(f"figures: {path}", soft_wrap=True)
