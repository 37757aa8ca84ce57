"""Which plan runs next: the oldest that is ready. Pure: no clock, no waiting.

Plans of one lane (a batch) run in order of arrival, whatever is ready behind the first of them; a
plan without a lane is held up by nobody and holds nobody up. Nothing that arrives later overtakes
a plan that is ready, so a plan whose wait is bounded runs after a bounded number of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Queued(Generic[T]):
    """A plan that has not started."""

    plan: T
    lane: Hashable | None
    is_ready: bool


class ReadyFirst(Generic[T]):
    """The plans that have not started, oldest first."""

    def __init__(self) -> None:
        self._queued: list[Queued[T]] = []

    def __len__(self) -> int:
        return len(self._queued)

    def put(self, plan: T, lane: Hashable | None, *, is_ready: bool) -> Queued[T]:
        """Add a plan that arrived; set its `is_ready` when it has what it needs."""
        queued = Queued(plan, lane, is_ready)
        self._queued.append(queued)
        return queued

    def take(self) -> T | None:
        """Take the plan that runs next; None: none can."""
        held_up: set[Hashable] = set()
        for index, queued in enumerate(self._queued):
            if queued.lane in held_up:
                continue
            if queued.is_ready:
                return self._queued.pop(index).plan
            if queued.lane is not None:
                held_up.add(queued.lane)
        return None
