"""Links within one process, with faults on request: a test double. No torch.

Packets go through the same words as everywhere. Nothing here sleeps: a delayed packet waits until
the test releases it. Two ends that are formed with the same name on one `LocalNetwork` meet; a
worker that was given none (`LinkOptions.network`) neither offers nor forms such links.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from minedraft.errors import InvalidRequestError
from minedraft.link.formation import await_peer
from minedraft.link.lost import LostLatch
from minedraft.link.receiver import LinkReceiver

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.link.endpoints import OnLost
    from minedraft.packets.packet import DraftPacket
    from minedraft.packets.rows import Words
    from minedraft.packets.spec import LinkSpec

T = TypeVar("T")

_CORRUPTED_WORD = 12
_MAX_HELD = 64


class LocalLink:
    """One link with both ends, and the faults that a test requests. Thread-safe.

    Faults may be ordered before the ends meet. `drop`, `duplicate` and `corrupt` apply to the next
    packets sent; `hold` keeps all of them back, in order, until `release`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.num_sent = 0
        """Packets that the sender got, with those that a fault lost."""
        self._lock = threading.RLock()
        self._faults = {"drop": 0, "duplicate": 0, "corrupt": 0}
        self._is_held = False
        self._held: deque[Words] = deque(maxlen=_MAX_HELD)
        self.sender: Future[LocalSender] = Future()
        self.receiver: Future[LinkReceiver] = Future()
        for seat in (self.sender, self.receiver):
            seat.set_running_or_notify_cancel()  # who gives up waiting must not cancel the seat

    def kill(self, reason: str = "killed") -> None:
        """Break the link: both ends report the loss, and held packets are lost."""
        with self._lock:
            self._held.clear()
        if self.sender.done():
            self.sender.result().lose(reason)
        if self.receiver.done():
            self.receiver.result().lose(reason)

    def drop(self, count: int = 1) -> None:
        """Lose the next packets."""
        self._order("drop", count)

    def duplicate(self, count: int = 1) -> None:
        """Deliver the next packets twice."""
        self._order("duplicate", count)

    def corrupt(self, count: int = 1) -> None:
        """Flip bits in the next packets."""
        self._order("corrupt", count)

    def hold(self) -> None:
        """Delay every packet from now on."""
        with self._lock:
            self._is_held = True

    def release(self, count: int | None = None) -> None:
        """Deliver the oldest held packets.

        Args:
            count: How many; None: all, and stop delaying.
        """
        with self._lock:
            if count is None:
                self._is_held = False
            for _ in range(len(self._held) if count is None else min(count, len(self._held))):
                self._deliver(self._held.popleft())

    def inject(self, words: Words) -> None:
        """Deliver words that no sender wrote: garbage, stale or forged packets."""
        self._deliver(words)

    def push(self, words: Words) -> None:
        """Carry one packet of the sender, with the requested faults."""
        with self._lock:
            self.num_sent += 1
            if self._spend("drop"):
                return
            if self._spend("corrupt"):
                words = words.copy()
                words[_CORRUPTED_WORD % len(words)] ^= 0x5A5A5A5A
            for _ in range(2 if self._spend("duplicate") else 1):
                if self._is_held:
                    self._held.append(words)
                else:
                    self._deliver(words)

    def _order(self, fault: str, count: int) -> None:
        with self._lock:
            self._faults[fault] += count

    def _spend(self, fault: str) -> bool:
        ordered = self._faults[fault] > 0
        self._faults[fault] -= ordered
        return ordered

    def _deliver(self, words: Words) -> None:
        if self.receiver.done():
            self.receiver.result().feed(words)


class LocalNetwork:
    """Links by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[str, LocalLink] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the live links, oldest first."""
        with self._lock:
            return tuple(self._links)

    def link(self, name: str) -> LocalLink:
        """Return the link of this name; the first call makes it."""
        with self._lock:
            return self._links.setdefault(name, LocalLink(name))

    def forget(self, name: str) -> None:
        """Drop an ended link."""
        with self._lock:
            self._links.pop(name, None)


class LocalSender:
    """A `DraftSender` that delivers in the caller's thread."""

    description = "local"

    def __init__(
        self, spec: LinkSpec, link: LocalLink, on_lost: OnLost, forget: Callable[[], None]
    ) -> None:
        self._layout = spec.layout
        self._link = link
        self._forget = forget
        self._latch = LostLatch(spec.epoch, on_lost)

    def send(self, packet: DraftPacket) -> None:
        """See `DraftSender`."""
        words = self._layout.encode(packet)
        if self._latch.is_open:
            self._link.push(words)

    def close(self) -> None:
        """See `DraftSender`."""
        if self._latch.shut():
            self._forget()
            if self._link.receiver.done():
                self._link.receiver.result().lose("the drafter closed the link")

    def lose(self, reason: str) -> None:
        """The peer is gone."""
        if self._latch.shut():
            self._latch.report(reason)


async def form_sender(spec: LinkSpec, *, on_lost: OnLost, network: LocalNetwork) -> LocalSender:
    """Meet the receiver of the same name.

    Raises:
        InvalidRequestError: the name has a sender already.
        WorkerUnavailableError: no peer came within the spec's timeout.
    """
    link = network.link(spec.name)
    sender = LocalSender(spec, link, on_lost, forget=lambda: network.forget(spec.name))
    _sit_down(link.sender, sender, spec)
    await await_peer(link.receiver, spec, abandon=sender.close)
    return sender


async def form_receiver(
    spec: LinkSpec, *, on_lost: OnLost, vocab_size: int, network: LocalNetwork
) -> LinkReceiver:
    """Meet the sender of the same name.

    Raises:
        InvalidRequestError: the name has a receiver already.
        WorkerUnavailableError: no peer came within the spec's timeout.
    """
    link = network.link(spec.name)

    def teardown() -> None:
        network.forget(spec.name)
        if link.sender.done():
            link.sender.result().lose("the verifier closed the link")

    receiver = LinkReceiver(
        spec, vocab_size=vocab_size, description="local", on_lost=on_lost, teardown=teardown
    )
    _sit_down(link.receiver, receiver, spec)
    await await_peer(link.sender, spec, abandon=receiver.close)
    return receiver


def _sit_down(seat: Future[T], end: T, spec: LinkSpec) -> None:
    if seat.done():
        raise InvalidRequestError(f"name={spec.name!r}: both ends are taken", field="name")
    seat.set_result(end)
