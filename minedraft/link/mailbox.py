"""The receiver's packets by batch and step, between the link's thread and the event loop.

Steps of one batch are taken in rising order, those of different batches in any order. No I/O, no
clock beyond `asyncio.wait`'s timeout. Everything that waits wakes when the link is lost. Memory is
bounded whatever the peer sends and however long the loop is busy.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from minedraft.link.endpoints import LinkCounters

if TYPE_CHECKING:
    from minedraft.packets.packet import DraftPacket

CAPACITY = 32

_Step: TypeAlias = tuple[int, int]
"""Batch and step id."""


class Mailbox:
    """Packets of one epoch. Made in the event loop that takes from it.

    Args:
        epoch: Packets of another one are dropped.
        capacity: Most packets held; beyond it the one that came first is dropped, so that
            packets for steps that nobody ever takes cannot stay in the way.
    """

    def __init__(self, epoch: int, capacity: int = CAPACITY) -> None:
        self._epoch = epoch
        self._capacity = capacity
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # guards the four below: the only state two threads touch
        self._inbox: deque[DraftPacket] = deque()
        self._num_inbox_overflow = 0
        self._is_scheduled = False
        self._is_lost = False
        self._packets: dict[_Step, DraftPacket] = {}
        self._waiters: dict[_Step, asyncio.Future[DraftPacket | None]] = {}
        self._taken: dict[int, int] = {}
        """By batch, the newest step taken."""
        self._delivered: dict[int, int] = {}
        """By batch, the newest step whose packet was handed over."""
        self._counters = LinkCounters()

    @property
    def counters(self) -> LinkCounters:
        """What came and what was dropped; `malformed` and `bad_rows` are the receiver's."""
        sorted_out = self._counters
        return replace(sorted_out, overflow=sorted_out.overflow + self._num_inbox_overflow)

    def post(self, packet: DraftPacket) -> None:
        """Hand over a packet. From any thread; never blocks."""
        with self._lock:
            self._inbox.append(packet)
            if len(self._inbox) > self._capacity:
                self._inbox.popleft()
                self._num_inbox_overflow += 1
        self._schedule()

    def lose(self) -> None:
        """Close: no packet will come any more. From any thread."""
        with self._lock:
            self._is_lost = True
        self._schedule()

    async def take(self, batch: int, step_id: int, timeout_s: float) -> DraftPacket | None:
        """See `DraftReceiver.take`."""
        self._deliver()
        if step_id <= self._taken.get(batch, -1):
            return None
        for old in [step for step in self._packets if step[0] == batch and step[1] < step_id]:
            del self._packets[old]
            self._count(late=1)
        self._taken[batch] = step_id
        step = (batch, step_id)
        packet = self._packets.pop(step, None)
        if packet is not None:
            self._delivered[batch] = step_id
        if packet is not None or self._is_lost or timeout_s <= 0:
            return packet
        waiter = self._waiters[step] = self._loop.create_future()
        try:
            await asyncio.wait((waiter,), timeout=timeout_s)
            return waiter.result() if waiter.done() else None
        finally:
            del self._waiters[step]

    def _schedule(self) -> None:
        with self._lock:
            if self._is_scheduled:
                return
            self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    def _deliver(self) -> None:
        with self._lock:
            packets, is_lost = tuple(self._inbox), self._is_lost
            self._inbox.clear()
            self._is_scheduled = False
        for packet in packets:
            self._sort(packet)
        if is_lost:
            for waiter in self._waiters.values():
                if not waiter.done():
                    waiter.set_result(None)

    def _sort(self, packet: DraftPacket) -> None:
        batch, step_id = step = (packet.batch, packet.step_id)
        waiter = self._waiters.get(step)
        if packet.epoch != self._epoch:
            self._count(received=1, wrong_epoch=1)
        elif waiter is not None and not waiter.done():
            self._count(received=1)
            self._delivered[batch] = max(step_id, self._delivered.get(batch, -1))
            waiter.set_result(packet)
        elif step in self._packets or step_id == self._delivered.get(batch):
            self._count(received=1, duplicate=1)
        elif step_id <= self._taken.get(batch, -1):
            self._count(received=1, late=1)
        else:
            self._count(received=1)
            self._packets[step] = packet
            if len(self._packets) > self._capacity:
                del self._packets[next(iter(self._packets))]
                self._count(overflow=1)

    def _count(self, **more: int) -> None:
        sums = {name: getattr(self._counters, name) + by for name, by in more.items()}
        self._counters = replace(self._counters, **sums)
