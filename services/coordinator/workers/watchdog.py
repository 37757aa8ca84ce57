"""Finds workers that owe an answer for too long: their device hangs, even if their loop runs.

Time counts only while this process lives through it. After a pause of the coordinator itself (a
stopped process, a suspended machine, a loop that something held up) the workers' answers wait in
its sockets, and nobody is to blame.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

Peer = TypeVar("Peer")

_TICKS_PER_LIMIT = 20
"""So a peer is left within 1.1 times the limit, a tick of delay included."""
_LONGEST_TICK_S = 0.5
_MOST_TICKS_AT_ONCE = 2
"""A look that comes later than this many ticks after the last one: this process was away."""


@dataclass(slots=True)
class _Debt:
    """What one peer owes, and for how long it was waited for."""

    step: int
    waited_s: float = 0.0


class Watchdog(Generic[Peer]):
    """See the module docstring.

    Args:
        limit_s: Longest that a peer may owe the same step.
        owed: By peer, the step it owes; 0: nothing. Another number each time it gets on.
        leave: Ends the session of a peer that is over the limit; gets the seconds waited.
        clock: Monotonic seconds.
        sleep: Waits.
    """

    def __init__(
        self,
        limit_s: float,
        owed: Callable[[], Mapping[Peer, int]],
        leave: Callable[[Peer, float], Awaitable[None]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._limit_s = limit_s
        self._tick_s = min(limit_s / _TICKS_PER_LIMIT, _LONGEST_TICK_S)
        self._owed = owed
        self._leave = leave
        self._clock = clock
        self._sleep = sleep
        self._debts: dict[Peer, _Debt] = {}

    async def run(self) -> None:
        """Look at everybody until cancelled."""
        last_s = self._clock()
        while True:
            await self._sleep(self._tick_s)
            now_s = self._clock()
            lived_s = min(now_s - last_s, _MOST_TICKS_AT_ONCE * self._tick_s)
            last_s = now_s
            for peer, waited_s in self._overdue(lived_s):
                await self._leave(peer, waited_s)

    def _overdue(self, lived_s: float) -> list[tuple[Peer, float]]:
        debts: dict[Peer, _Debt] = {}
        for peer, step in self._owed().items():
            debt = self._debts.get(peer)
            if not step:
                continue
            if debt is None or debt.step != step:
                debts[peer] = _Debt(step)
            else:
                debt.waited_s += lived_s
                debts[peer] = debt
        self._debts = debts
        # Sums of floats: a tick's fraction must not make it one tick more.
        enough_s = self._limit_s - self._tick_s / 2
        return [(peer, debt.waited_s) for peer, debt in debts.items() if debt.waited_s > enough_s]
