"""Virtual time: calls in the order of their times, and of their making where times are equal. Pure.

There is no clock: time is where the last event was.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], None]

BEGIN_NS: Final = 1_000_000_000
"""When every simulation begins; not 0, which spans take for "no time"."""


class Events:
    """See the module docstring."""

    def __init__(self) -> None:
        self.now_ns = BEGIN_NS
        self._heap: list[tuple[int, int, Call]] = []
        self._num_made = 0

    def at(self, time_ns: int, call: Call) -> None:
        """Have something happen at a time that is not over."""
        self._num_made += 1
        heapq.heappush(self._heap, (max(time_ns, self.now_ns), self._num_made, call))

    def after(self, delay_ns: int, call: Call) -> None:
        """Have something happen later."""
        self.at(self.now_ns + delay_ns, call)

    def run(self, *, goes_on: Callable[[], bool], after_each: Call | None = None) -> None:
        """Let things happen until nothing is left.

        Args:
            goes_on: Asked before each event; False ends the run.
            after_each: Called after each event.
        """
        while self._heap and goes_on():
            self.now_ns, _, call = heapq.heappop(self._heap)
            call()
            if after_each is not None:
                after_each()
