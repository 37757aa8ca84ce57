"""Tells for what share of a step the other worker was at work, from the times in results. Pure.

Workers on one machine share its clock, so their intervals compare. Workers on two machines do not,
but there is no contention to learn of either.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minedraft.plans import StepTiming

_NUM_INTERVALS = 16


class Meanwhile:
    """The last intervals in which one kind of worker was at work."""

    def __init__(self) -> None:
        self._busy: deque[tuple[int, int]] = deque(maxlen=_NUM_INTERVALS)

    def note(self, timing: StepTiming) -> None:
        """A step of this worker. One without a time says nothing."""
        if timing.started_unix_ns and timing.total_ns:
            self._busy.append((timing.started_unix_ns, timing.started_unix_ns + timing.total_ns))

    def share(self, timing: StepTiming) -> float:
        """Share of another worker's step in which this one was at work, 0..1."""
        start, end = timing.started_unix_ns, timing.started_unix_ns + timing.total_ns
        if end <= start:
            return 0.0
        common = sum(
            max(min(end, busy_end) - max(start, busy_start), 0)
            for busy_start, busy_end in self._busy
        )
        return min(common / (end - start), 1.0)
