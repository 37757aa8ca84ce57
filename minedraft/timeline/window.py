"""Selects the spans of a picture. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.admin import Span

LANES = ("draft", "verify")
"""Top to bottom."""

_PAUSE_NS = 1_000_000_000


def last_steps(spans: Sequence[Span], num_steps: int) -> tuple[Span, ...]:
    """Pick the newest verify steps and the draft steps of the same time.

    A pause without requests ends the picture: it would squeeze the rest.

    Args:
        spans: Any order.
        num_steps: Verify spans to keep; > 0.

    Returns:
        By start time; empty if there are none.
    """
    verifies = sorted((span for span in spans if span.lane == "verify"), key=_start)[-num_steps:]
    for i in range(len(verifies) - 1, 0, -1):
        if verifies[i].start_ns - verifies[i - 1].end_ns > _PAUSE_NS:
            verifies = verifies[i:]
            break
    return _between(spans, verifies) if verifies else tuple(sorted(spans, key=_start)[-num_steps:])


def full_steps(spans: Sequence[Span], num_steps: int, *, num_rows: int) -> tuple[Span, ...]:
    """Pick the first run of verify steps that all had `num_rows` rows and no prompt tokens.

    Args:
        spans: Any order.
        num_steps: Verify spans to keep; > 0.
        num_rows: Rows of a full batch.

    Returns:
        By start time, with what the drafter did meanwhile. If no run is as long, the longest.
    """
    verifies = sorted((span for span in spans if span.lane == "verify"), key=_start)
    best: list[Span] = []
    run: list[Span] = []
    for span in verifies:
        is_full = span.num_rows == num_rows and span.num_prefill_rows == 0
        run = [*run, span] if is_full else []
        if len(run) > len(best):
            best = run
        if len(best) >= num_steps:
            break
    return _between(spans, best) if best else last_steps(spans, num_steps)


def _between(spans: Sequence[Span], verifies: Sequence[Span]) -> tuple[Span, ...]:
    begin, end = verifies[0].start_ns, max(span.end_ns for span in verifies)
    # a draft that ends where the window begins is not part of the picture
    shown = (span for span in spans if span.end_ns > begin and span.start_ns < end)
    return tuple(sorted(shown, key=_start))


def _start(span: Span) -> int:
    return span.start_ns
