"""The sender's queue: bounded and thread-safe. Rows of a dropped packet lose their drafts."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minedraft.packets.rows import Words

CAPACITY = 32
"""Most queued packets: several per batch; more means that the peer takes none."""


class Outbox:
    """Packets for the link's thread; heartbeats while there are none.

    Args:
        heartbeat: Words to send when there is nothing to say.
        heartbeat_s: Idle seconds before a heartbeat.
        capacity: Most packets held; beyond it the oldest is dropped, whose step has gone by.
    """

    def __init__(self, heartbeat: Words, heartbeat_s: float, capacity: int = CAPACITY) -> None:
        self._heartbeat = heartbeat
        self._heartbeat_s = heartbeat_s
        self._capacity = capacity
        self._packets: deque[Words] = deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, words: Words) -> None:
        """Queue a packet; never blocks."""
        with self._changed:
            if self._is_closed:
                return
            if len(self._packets) >= self._capacity:
                self._packets.popleft()
            self._packets.append(words)
            self._changed.notify()

    def next(self) -> Words | None:
        """Wait for the next packet, at most `heartbeat_s`. None: closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._packets or self._is_closed, self._heartbeat_s)
            if self._is_closed:
                return None
            return self._packets.popleft() if self._packets else self._heartbeat

    def close(self) -> None:
        """Drop the queue and wake the link's thread for good."""
        with self._changed:
            self._is_closed = True
            self._packets.clear()
            self._changed.notify_all()
