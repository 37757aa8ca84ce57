"""Orders the requests that wait for admission: by priority, and none waits without end. Pure.

The rule counts admissions, not time. The next request is that of the lowest priority number, of
these the one that arrived first. But of every four admissions one, at the latest, is the oldest
request's. So before a request that A older ones wait ahead of, at most 4 A + 3 are admitted, where
order of arrival admits A: its wait is at most four times as long. Nor does it wait for ever for
room: while it is next, nobody is admitted before it.

A request that is admitted for its age ranks before every priority from then on. Else it could lose
its blocks to those that it has waited for, again and again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.services.coordinator.core.request import Request

MAX_OVERTAKEN: Final = 3
"""Admissions in a row that may pass over the oldest request."""
_by_arrival = attrgetter("arrival")
_by_rank = attrgetter("rank")


class WaitingQueue:
    """See the module docstring. Iterates in order of arrival."""

    def __init__(self) -> None:
        self._by_arrival: list[Request] = []
        self._by_rank: list[Request] = []
        self._num_overtaken = 0
        """Admissions since the oldest one's."""

    def __len__(self) -> int:
        return len(self._by_arrival)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._by_arrival)

    def add(self, request: Request) -> None:
        """A request waits, or waits again: at its place by arrival, not at the end."""
        insort(self._by_arrival, request, key=_by_arrival)
        insort(self._by_rank, request, key=_by_rank)

    @property
    def next(self) -> Request:
        """Whom to admit next. The queue must not be empty."""
        is_due = self._num_overtaken >= MAX_OVERTAKEN
        return self._by_arrival[0] if is_due else self._by_rank[0]

    def take(self) -> Request:
        """Remove `next`, which is admitted."""
        request = self.next
        is_oldest, is_first = request is self._by_arrival[0], request is self._by_rank[0]
        self.remove(request)
        self._num_overtaken = 0 if is_oldest else self._num_overtaken + 1
        if not is_first:
            request.age()
        return request

    def remove(self, request: Request) -> None:
        """A request waits no more."""
        del self._by_arrival[bisect_left(self._by_arrival, request.arrival, key=_by_arrival)]
        del self._by_rank[bisect_left(self._by_rank, request.rank, key=_by_rank)]
