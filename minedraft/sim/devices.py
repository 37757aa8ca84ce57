"""Devices that compute one thing at a time, each slower while another computes too. Pure.

Work that begins alone and ends beside another device's takes a part of both durations: each stretch
does its share of the whole at the pace that holds for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.sim.events import Events


@dataclass(frozen=True, slots=True)
class Durations:
    """How long a piece of work takes, in ns."""

    alone: float
    overlapped: float
    """While another device computes all the time."""


@dataclass(slots=True, eq=False)
class _Running:
    durations: Durations
    done: Callable[[], None]
    left: float = 1.0
    """Share of the work that is left."""
    since_ns: int = 0
    """From when on `pace_ns` holds."""
    pace_ns: float = 0.0
    """What the whole work would take."""
    version: int = 0
    """Ends that were announced for another pace are void."""


class Devices:
    """All devices that share memory, caches or cores.

    Args:
        events: Virtual time.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._running: list[_Running] = []

    def compute(self, durations: Durations, done: Callable[[], None]) -> None:
        """Begin a piece of work on a device that has none; call `done` at its end."""
        self._running.append(_Running(durations, done))
        self._set_paces()

    def _set_paces(self) -> None:
        now_ns, are_several = self._events.now_ns, len(self._running) > 1
        for work in self._running:
            pace_ns = work.durations.overlapped if are_several else work.durations.alone
            if work.version and pace_ns == work.pace_ns:
                continue
            if work.pace_ns > 0:
                work.left = max(work.left - (now_ns - work.since_ns) / work.pace_ns, 0.0)
            work.since_ns, work.pace_ns = now_ns, pace_ns
            work.version += 1
            self._events.after(round(work.left * pace_ns), partial(self._end, work, work.version))

    def _end(self, work: _Running, version: int) -> None:
        if version != work.version:
            return
        self._running.remove(work)
        work.done()  # the device may begin its next work, then nothing changes for the others
        self._set_paces()
