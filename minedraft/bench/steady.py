"""Finds the steady part of a run in its spans and takes medians over it. Pure.

A verify step is steady if every slot of its batch was full and no row fed prompt tokens. A step
counts only if the next verify step is steady too: then the time from its start to the next start
is a whole period of the rotation, whatever the mode. Throughput is the tokens of these steps over
the sum of these periods, so neither prefill nor the thin end of a run is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.admin import Span

MIN_STEPS = 3
"""Least number of steady steps for a figure."""


@dataclass(frozen=True, slots=True)
class Steady:
    """Medians of the steady part."""

    num_steps: int
    """Steps behind the medians; 0: none, and every other figure is 0."""
    num_rows: int
    """Rows per step: the batch size, or less if the slots were never all full."""
    tokens_per_s: float
    verify_ms: float
    """V: device time of a verify step."""
    draft_ms: float
    """t: device time of a draft step; 0 without drafts."""
    step_ms: float
    """Start of a verify step to the start of the next."""
    bubble_ms: float
    """Device idle between two verify steps although plan and drafts were there."""
    forward_ms: float
    """Of V: the model's forward pass."""
    sample_ms: float
    """Of V: sampling and acceptance."""


def measure(spans: Sequence[Span], *, batch: int) -> Steady:
    """Measure the steady part.

    Args:
        spans: Both lanes of one run, any order.
        batch: Slots of a batch. If no steps of this size came in sequence, the fullest size that
            did is taken instead; `num_rows` says so.

    Returns:
        Medians, times in ms.
    """
    ordered = sorted(spans, key=lambda span: span.start_ns)
    verifies = [span for span in ordered if span.lane == "verify" and span.num_rows]
    sizes = sorted({span.num_rows for span in verifies if span.num_rows <= batch}, reverse=True)
    for num_rows in sizes:
        periods = [
            (span, following.start_ns - span.start_ns)
            for span, following in pairwise(verifies)
            if _is_steady(span, num_rows) and _is_steady(following, num_rows)
        ]
        if len(periods) >= MIN_STEPS:
            drafts = [
                span
                for span in ordered
                if span.lane == "draft" and span.num_tokens and _is_steady(span, num_rows)
            ]
            return _medians(num_rows, periods, drafts)
    return Steady(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _is_steady(span: Span, num_rows: int) -> bool:
    return span.num_rows == num_rows and span.num_prefill_rows == 0


def _medians(num_rows: int, periods: Sequence[tuple[Span, int]], drafts: Sequence[Span]) -> Steady:
    timings = [span.timing for span, _ in periods]
    num_tokens = sum(span.num_tokens for span, _ in periods)
    wall_ns = sum(length for _, length in periods)
    return Steady(
        num_steps=len(periods),
        num_rows=num_rows,
        tokens_per_s=num_tokens / (wall_ns / 1e9),
        verify_ms=_ms([timing.total_ns for timing in timings]),
        draft_ms=_ms([span.timing.total_ns for span in drafts]),
        step_ms=_ms([length for _, length in periods]),
        bubble_ms=_ms([timing.bubble_ns for timing in timings]),
        forward_ms=_ms([timing.forward_ns for timing in timings]),
        sample_ms=_ms([timing.sample_ns for timing in timings]),
    )


def _ms(values_ns: Sequence[int]) -> float:
    return median(values_ns) / 1e6 if values_ns else 0.0
