"""Formats a bench for a terminal: a table and the lines under it. Decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from minedraft.bench.machine import in_words
from minedraft.plain_text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minedraft.bench.result import BenchResult, ModeResult

_TITLES = {
    "ar": "AR",
    "ar_2m": "AR, 2M",
    "ar_all": "AR, 2M, all cores",
    "sd": "SD",
    "sd_2m": "SD, 2M",
    "psd": "PSD",
}


_FEW_STEPS = 10
"""The table calls medians of fewer steps rough."""


def table(result: BenchResult, *, title: str = "") -> Table:
    """Build the table, one column per measurement."""
    built = Table(title=Text(plain(title)) if title else None, title_justify="left")
    built.add_column("")
    for name in result.modes:
        built.add_column(_TITLES[name], justify="right")
    for label, cell in _ROWS:
        built.add_row(label, *(cell(mode) for mode in result.modes.values()))
    efficiency = result.overlap_efficiency
    if efficiency is not None:
        cells = [f"{efficiency:.2f}" if name == "psd" else "-" for name in result.modes]
        built.add_row("overlap efficiency", *cells)
    built.add_row(
        "same output",
        *(_share(mode, result.reference) for mode in result.modes.values()),
    )
    return built


def lines(result: BenchResult) -> Iterator[str]:
    """Write what does not fit the table: ratios beside predictions, agreement, machine."""
    for text, over, predicted in (
        ("PSD / SD (equal batch)", "sd", result.psd_over_sd_predicted),
        ("PSD / SD with 2M (equal concurrency)", "sd_2m", result.psd_over_sd_2m_predicted),
    ):
        measured = result.ratio("psd", over)
        if measured is not None and predicted:
            yield (
                f"{text}: {measured:.2f}x measured, {predicted:.2f}x predicted "
                f"({measured / predicted:.0%} of it)"
            )
    if result.beside_over_alone is not None:
        verify, draft = result.beside_over_alone
        yield f"beside each other over alone: V {verify:.2f}x, t {draft:.2f}x"
    for text, over in (
        ("PSD / AR, which has the verifier's cores only", "ar"),
        ("PSD / AR with 2M, likewise", "ar_2m"),
    ):
        measured = result.ratio("psd", over)
        if measured is not None:
            yield f"{text}: {measured:.2f}x"
    measured = result.ratio("psd", "ar_all")
    if measured is not None:
        verdict = "pays" if measured > 1 else "does not pay"
        yield f"PSD / AR with 2M on the same cores: {measured:.2f}x; speculation {verdict} here"
    yield from thin_parts(result)
    yield f"requests that agree in all modes: {result.agreement:.0%}"
    yield f"identical outputs: {'yes' if result.identical_outputs else 'no'}"
    yield f"machine: {in_words(result.about['machine'])}"


def thin_parts(result: BenchResult) -> Iterator[str]:
    """Warn of figures that rest on too few steps."""
    for name, mode in result.modes.items():
        if mode.num_stale_drafts:
            yield f"warning: {_TITLES[name]} had {mode.num_stale_drafts} drafts come too late"
        steady, batch = mode.steady, mode.measurement.mode.max_batch_size
        if steady.num_steps == 0:
            yield f"warning: {_TITLES[name]} had no steady part; use more prompts or tokens"
        elif steady.num_steps < _FEW_STEPS:
            yield (
                f"warning: {_TITLES[name]} was steady for {steady.num_steps} steps only, which is "
                "little for a median; use more prompts or tokens"
            )
        elif steady.num_rows < batch:
            yield (
                f"warning: {_TITLES[name]} never held {batch} rows in a batch for long; its "
                f"figures are from steps of {steady.num_rows}"
            )


def _shape(result: ModeResult) -> str:
    mode = result.measurement.mode
    return f"{mode.num_batches} x {mode.max_batch_size}"


def _drafted(result: ModeResult, cell: str) -> str:
    return cell if result.measurement.mode.num_draft_tokens else "-"


def _share(result: ModeResult, reference: tuple[tuple[int, ...], ...]) -> str:
    same = sum(a == b for a, b in zip(result.outputs, reference, strict=True))
    return "yes" if same == len(reference) else f"{same} of {len(reference)}"


_ROWS: tuple[tuple[str, Callable[[ModeResult], str]], ...] = (
    ("batches x size", _shape),
    ("cores", lambda r: r.cores or "?"),
    ("tokens/s", lambda r: f"{r.steady.tokens_per_s:.1f}"),
    ("acceptance length", lambda r: _drafted(r, f"{r.speculation.mean_acceptance_length:.2f}")),
    ("acceptance rate", lambda r: _drafted(r, f"{r.speculation.acceptance_rate:.1%}")),
    ("V: verify, ms", lambda r: f"{r.steady.verify_ms:.1f}"),
    ("t: draft, ms", lambda r: _drafted(r, f"{r.steady.draft_ms:.1f}")),
    ("step, ms", lambda r: f"{r.steady.step_ms:.1f}"),
    ("bubble, ms", lambda r: f"{r.steady.bubble_ms:.2f}"),
    ("steps these rest on", lambda r: f"{r.steady.num_steps}"),
    ("TTFT p50, ms", lambda r: f"{r.to_json()['ttft_ms_p50']:.0f}"),
    ("TPOT p50, ms", lambda r: f"{r.to_json()['tpot_ms_p50']:.1f}"),
    ("worst gap, ms", lambda r: f"{r.to_json()['worst_gap_ms']:.0f}"),
    ("E2E p50, ms", lambda r: f"{r.to_json()['e2e_ms_p50']:.0f}"),
)
