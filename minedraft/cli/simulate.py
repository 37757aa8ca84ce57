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
from minedraft.sim.load import MAX_RATE, MAX_REQUESTS, steady
from minedraft.sim.outputs import MAX_AUTOCORRELATION, MAX_SPREAD, AcceptanceModel
from minedraft.sim.report import Report, report
from minedraft.sim.simulation import Setup, Simulation
from minedraft.sim.step_costs import FlatCosts, LinearCosts, StepCosts
from minedraft.sim.trace_file import read_trace
from minedraft.timeline.window import full_steps
from minedraft.types import MAX_MODEL_LEN, Mode

_MAX_MS = 1e6
_PICTURE_STEPS = 16


def simulate(
    trace: Annotated[
        Path | None,
        typer.Option(help="CSV of arrivals: TIMESTAMP, ContextTokens, GeneratedTokens."),
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
    max_steps: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="End after so many verify steps.")
    ] = 1_000_000,
    num_blocks: Annotated[
        int, typer.Option(min=1, max=2**24, help="KV blocks of the verifier.")
    ] = 8192,
) -> None:
    """Simulate a load on the coordinator's own scheduler, in virtual time, without models."""
    setup = Setup(
        hop_ns=round(hop_ms * 1e6),
        link_ns=round(hop_ms * 1e6),
        num_drafters=num_drafters,
        num_blocks=num_blocks,
        seed=seed,
    )
    setup = replace(
        setup,
        mode=Mode(2 if batches is None else batches, batch or 8, 4 if k is None else k),
        costs=_costs(verify_ms, draft_ms),
        acceptance=_acceptance(acceptance, spread, autocorrelation),
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
    _write_json(json_file, found.to_json())
    _draw(svg, simulation.timeline.spans(), setup.mode)


def _costs(verify_ms: float | None, draft_ms: float | None) -> StepCosts:
    """Choose the costs of steps: said here, or made up."""
    if (verify_ms is None) != (draft_ms is None):
        raise ConfigError("give both --verify-ms and --draft-ms, or neither")
    if verify_ms is not None and draft_ms is not None:
        return FlatCosts(verify_ms * 1e6, draft_ms * 1e6)
    return LinearCosts()


def _acceptance(text: str, spread: float, autocorrelation: float) -> AcceptanceModel:
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
    ):
        table.add_row(label, value)
    return table


def _draw(path: Path | None, spans: Sequence[Span], mode: Mode) -> None:
    if path is not None:
        shown = full_steps(spans, _PICTURE_STEPS, num_rows=mode.max_batch_size)
        write_picture(path, shown, mode, subtitle="simulated")
        err.print(f"picture: {path}", soft_wrap=True)


def _write_json(path: Path | None, figures: Mapping[str, Any]) -> None:
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"json={str(path)!r}: {failure.strerror}") from None
    err.print(f"figures: {path}", soft_wrap=True)
