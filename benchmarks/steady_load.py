"""A closed loop of requests whose every token's time is known and whose every output is checked.

As one request ends, its slot sends the next. Knows nothing of faults; a request that fails, or
whose output is not the reference's, is counted and kept.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from minedraft.errors import MineDraftError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from minedraft.client import Client


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of the load."""

    token_ids: tuple[int, ...]
    max_tokens: int
    options: dict[str, Any] = field(default_factory=lambda: {"temperature": 0.0})


@dataclass(slots=True)
class Slot:
    """What is running in one place of the load."""

    asked: int = -1
    """Index of the request."""
    token_ids: list[int] = field(default_factory=list)
    """Its tokens so far; empty: it has not begun to stream."""


class SteadyLoad:
    """See the module docstring.

    Args:
        client: Where to send them.
        requests: In turns, for ever.
        num_slots: Requests live at any time.
    """

    def __init__(self, client: Client, requests: Sequence[Asked], num_slots: int) -> None:
        self._client = client
        self.requests = requests
        self.slots = [Slot() for _ in range(num_slots)]
        self.arrivals: list[tuple[int, int, int]] = []
        """(Unix ns, slot, tokens) of every delta, in order."""
        self.reference: list[tuple[int, ...]] = []
        self.num_done = 0
        self.failures: list[str] = []
        self.changed: list[str] = []

    async def learn(self) -> None:
        """Run every request once, undisturbed: from now on that is the reference.

        Raises:
            MineDraftError: one failed.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._once(asked)) for asked in self.requests]
        self.reference = [task.result() for task in tasks]

    async def _once(self, asked: Asked) -> tuple[int, ...]:
        completion = await self._client.generate(
            list(asked.token_ids), max_tokens=asked.max_tokens, ignore_eos=True, **asked.options
        )
        return completion.token_ids

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep all slots busy. On the way out, what still runs is aborted."""
        numbers = count()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._keep_busy(index, numbers))
                for index in range(len(self.slots))
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def _keep_busy(self, index: int, numbers: count[int]) -> None:
        while True:
            await self._stream(index, next(numbers) % len(self.requests))

    async def _stream(self, index: int, which: int) -> None:
        asked, slot = self.requests[which], Slot(which)
        self.slots[index] = slot
        stream = self._client.stream(
            list(asked.token_ids), max_tokens=asked.max_tokens, ignore_eos=True, **asked.options
        )
        try:
            async for delta in stream:
                if delta.token_ids:
                    self.arrivals.append((time.time_ns(), index, len(delta.token_ids)))
                    slot.token_ids.extend(delta.token_ids)
            self.num_done += 1
        except MineDraftError as err:
            self.failures.append(f"request {which}: {type(err).__name__}: {err}")
            await asyncio.sleep(0.2)  # a service that refuses all must not be flooded
        finally:
            self._compare(slot)

    def _compare(self, slot: Slot) -> None:
        """Compare what came with the reference; of an aborted request, as far as it got."""
        if not self.reference:
            return
        pairs = enumerate(zip(slot.token_ids, self.reference[slot.asked], strict=False))
        at = next((i for i, (ours, theirs) in pairs if ours != theirs), None)
        if at is not None:
            self.changed.append(f"request {slot.asked} differs from token {at} on")

    # -- looking --------------------------------------------------------------------------------

    def streaming(self) -> dict[int, Slot]:
        """Slots whose request has tokens, and not its last ones yet."""
        return {
            index: slot
            for index, slot in enumerate(self.slots)
            if 0 < len(slot.token_ids) < self.requests[slot.asked].max_tokens - 8
        }

    def rate(self, begin_ns: int, end_ns: int) -> float:
        """Tokens a second that arrived between two moments."""
        first = bisect_left(self.arrivals, begin_ns, key=lambda arrival: arrival[0])
        last = bisect_left(self.arrivals, end_ns, key=lambda arrival: arrival[0])
        return sum(n for _, _, n in self.arrivals[first:last]) / ((end_ns - begin_ns) / 1e9)

    def next_token_ns(self, index: int, after_ns: int) -> int | None:
        """When a slot's first token after a moment came; None: not yet."""
        first = bisect_left(self.arrivals, after_ns, key=lambda arrival: arrival[0])
        return next((at for at, slot, _ in self.arrivals[first:] if slot == index), None)

    async def all_moved(self, indices: Sequence[int], after_ns: int) -> int:
        """Wait until each of these slots had a token after a moment; returns when the last had."""
        while True:
            times = [self.next_token_ns(index, after_ns) for index in indices]
            if all(at is not None for at in times):
                return max(at for at in times if at is not None)
            await asyncio.sleep(0.005)
