"""Groups the steps of a run by their size: a simulator takes its costs from them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from minedraft.admin import Span

MAX_SIZES: Final = 512
"""Most sizes that are reported: those with the most steps."""


@dataclass(frozen=True, slots=True)
class StepSize:
    """Steps of one size on one device."""

    lane: str
    """`draft` or `verify`."""
    num_rows: int
    num_draft_tokens: int
    """Of all rows together: verified, or drafted."""
    num_prefill_rows: int
    """Rows that fed prompt tokens."""
    num_steps: int
    total_ms: float
    """Median duration."""
    sum_ms: float
    """Of all these steps together."""
    overlap: float
    """Mean share of a step's time in which the other device computed too, 0..1."""

    def to_json(self) -> dict[str, Any]:
        """Figures by name."""
        return {
            "lane": self.lane,
            "num_rows": self.num_rows,
            "num_draft_tokens": self.num_draft_tokens,
            "num_prefill_rows": self.num_prefill_rows,
            "num_steps": self.num_steps,
            "total_ms_p50": self.total_ms,
            "sum_ms": self.sum_ms,
            "overlap": self.overlap,
        }


def step_sizes(spans: Sequence[Span]) -> tuple[StepSize, ...]:
    """Group the spans of a run.

    Args:
        spans: Both lanes, any order.

    Returns:
        At most `MAX_SIZES` groups, by lane and size.
    """
    keyed = sorted(((_key(span), overlap, span) for span, overlap in _overlaps(spans)), key=_first)
    groups = []
    for key, members in groupby(keyed, key=_first):
        found = list(members)
        durations = [span.timing.total_ns / 1e6 for _, _, span in found]
        overlap = fmean(share for _, share, _ in found)
        groups.append(
            StepSize(*key, len(found), median(durations), sum(durations), min(overlap, 1.0))
        )
    groups.sort(key=lambda size: -size.num_steps)
    return tuple(sorted(groups[:MAX_SIZES], key=_size))


def _first(item: tuple[tuple[str, int, int, int], float, Span]) -> tuple[str, int, int, int]:
    return item[0]


def _key(span: Span) -> tuple[str, int, int, int]:
    num_draft_tokens = span.num_tokens if span.lane == "draft" else span.num_draft_tokens
    return span.lane, span.num_rows, num_draft_tokens, span.num_prefill_rows


def _size(size: StepSize) -> tuple[str, int, int, int]:
    return size.lane, size.num_rows, size.num_draft_tokens, size.num_prefill_rows


def _overlaps(spans: Sequence[Span]) -> Iterator[tuple[Span, float]]:
    """Find for each span which share of it the other device was busy."""
    lanes: dict[str, list[Span]] = {"draft": [], "verify": []}
    for span in sorted(spans, key=lambda span: span.start_ns):
        if span.lane in lanes and span.num_rows:
            lanes[span.lane].append(span)
    for lane, other in (("draft", "verify"), ("verify", "draft")):
        others, first = lanes[other], 0
        for span in lanes[lane]:
            while first < len(others) and others[first].end_ns <= span.start_ns:
                first += 1
            shared_ns, index = 0, first
            while index < len(others) and others[index].start_ns < span.end_ns:
                end_ns = min(others[index].end_ns, span.end_ns)
                shared_ns += max(end_ns - max(others[index].start_ns, span.start_ns), 0)
                index += 1
            yield span, shared_ns / max(span.timing.total_ns, 1)
