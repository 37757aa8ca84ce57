"""Brings the two ends of a link together, on the verifier's side. In memory, thread-safe.

Nothing exists here that this process did not open first: a peer that names an unknown link only
waits, bounded in time and number, and can never make this process keep anything for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from minedraft.errors import (
    DeadlineError,
    ProtocolError,
    QueueFullError,
    StateError,
    WorkerUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_KEYS: Final = 64
"""Most keys per link; gloo writes two for two ranks."""
MAX_WAITERS: Final = 64
"""Most callers that wait on one board at the same time."""
MAX_NAMES_REMEMBERED: Final = 256
"""Names of ended links that are remembered; a late peer gets an error instead of waiting."""

T = TypeVar("T")


class PacketSink(Protocol):
    """Receives the packets of a link over gRPC."""

    def feed_bytes(self, data: bytes) -> None:
        """Receive one packet, on the event loop."""

    def lose(self, reason: str) -> None:
        """The sender is gone."""


class Board(Generic[T]):
    """Values by key. A reader that comes too early waits, in a thread or in an event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._values: dict[str, T] = {}
        self._waiters: dict[str, list[Future[T]]] = {}
        self._is_over = False

    def put(self, key: str, value: T, *, max_keys: int = MAX_KEYS) -> None:
        """Write a key, once.

        Raises:
            ProtocolError: it is there already, or the board is full.
        """
        with self._lock:
            if key in self._values:
                raise ProtocolError(f"{self._name}: key {key!r} is written twice")
            if len(self._values) >= max_keys:
                raise ProtocolError(f"{self._name}: over {max_keys} keys")
            self._values[key] = value
            waiters = self._waiters.pop(key, [])
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(value)

    def end(self) -> None:
        """Close the board: waiting readers get WorkerUnavailableError."""
        with self._lock:
            self._is_over = True
            waiters = [waiter for several in self._waiters.values() for waiter in several]
            self._waiters.clear()
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_exception(WorkerUnavailableError(f"{self._name}: it has ended"))

    def take_down(self, key: str) -> T | None:
        """Remove a key, so that it can be written again."""
        with self._lock:
            return self._values.pop(key, None)

    def get(self, key: str, timeout_s: float) -> T:
        """Wait for a key, in a thread.

        Raises:
            DeadlineError: it was not written in time.
            QueueFullError: too many wait.
            WorkerUnavailableError: `end` was called.
        """
        future = self._expect(key)
        try:
            return future.result(timeout=max(0.0, timeout_s))
        except TimeoutError:
            raise self._too_late(key, timeout_s) from None
        finally:
            self._forget(key, future)

    async def wait(self, key: str, timeout_s: float) -> T:
        """Wait for a key, in an event loop. Raises like `get`."""
        future = self._expect(key)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
        except TimeoutError:
            raise self._too_late(key, timeout_s) from None
        finally:
            self._forget(key, future)

    def _too_late(self, key: str, timeout_s: float) -> DeadlineError:
        return DeadlineError(f"{self._name}: no {key!r} within {timeout_s:.3g} s")

    def _expect(self, key: str) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if key in self._values:
                future.set_result(self._values[key])
            elif self._is_over:
                future.set_exception(WorkerUnavailableError(f"{self._name}: it has ended"))
            elif sum(map(len, self._waiters.values())) >= MAX_WAITERS:
                raise QueueFullError(f"{self._name}: {MAX_WAITERS} callers wait already")
            else:
                self._waiters.setdefault(key, []).append(future)
        return future

    def _forget(self, key: str, future: Future[T]) -> None:
        with self._lock:
            waiters = self._waiters.get(key, [])
            if future in waiters:
                waiters.remove(future)
            if not waiters:
                self._waiters.pop(key, None)


class LinkSite:
    """One link on the verifier: its keys, and its sink if packets come over gRPC.

    Args:
        name: Of the link.
        sink: Takes the packets; None: they travel elsewhere.
        idle_timeout_s: Silence after which the sender counts as hung.
    """

    def __init__(self, name: str, sink: PacketSink | None, idle_timeout_s: float) -> None:
        self.name = name
        self.keys: Board[bytes] = Board(f"link {name}")
        self.idle_timeout_s = idle_timeout_s
        self.attached: Future[str] = Future()
        """Resolved with the peer's address when the sender's stream arrives."""
        self.closed: Future[None] = Future()
        """Resolved when this side ends the link."""
        self._sink = sink
        for future in (self.attached, self.closed):
            future.set_running_or_notify_cancel()

    def attach(self, peer: str) -> PacketSink:
        """The sender's stream arrives.

        Raises:
            ProtocolError: this link has no stream, or has one already.
        """
        if self._sink is None:
            raise ProtocolError(f"link {self.name}: its packets do not travel over gRPC")
        if self.attached.done():
            raise ProtocolError(f"link {self.name}: it has a sender already")
        self.attached.set_result(peer)
        return self._sink


class Rendezvous:
    """The links this verifier forms or has formed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sites: Board[LinkSite] = Board("rendezvous")
        self._over: deque[str] = deque(maxlen=MAX_NAMES_REMEMBERED)

    def open(
        self, name: str, *, sink: PacketSink | None = None, idle_timeout_s: float = 10.0
    ) -> LinkSite:
        """Expect a peer under this name.

        Raises:
            StateError: the name is or was in use, or too many links are open.
        """
        if name in self._over:
            raise StateError(f"link {name}: it has ended; every attempt needs a name of its own")
        site = LinkSite(name, sink, idle_timeout_s)
        try:
            self._sites.put(name, site)
        except ProtocolError as err:
            raise StateError(str(err)) from None
        return site

    def close(self, site: LinkSite) -> None:
        """End a link: forget its keys and end its stream. From any thread; idempotent."""
        if self._sites.take_down(site.name) is not None:
            self._over.append(site.name)
            site.keys.end()
            site.closed.set_result(None)

    async def site(self, name: str, timeout_s: float) -> LinkSite:
        """Return the link of this name; wait until this side has opened it.

        Raises:
            DeadlineError: it was not opened in time.
            WorkerUnavailableError: it is over.
        """
        if name in self._over:
            raise WorkerUnavailableError(f"link {name}: it has ended")
        return await self._sites.wait(name, timeout_s)

    async def key(self, name: str, key: str, timeout_s: float) -> bytes:
        """Read a key of a link; wait for both.

        Raises:
            DeadlineError: it was not written in time.
            WorkerUnavailableError: the link is over.
        """
        until = self._clock() + timeout_s
        site = await self.site(name, timeout_s)
        return await site.keys.wait(key, until - self._clock())
