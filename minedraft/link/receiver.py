"""The verifier's end of every link: decodes and sorts packets, wakes waiting steps.

A transport feeds it words from its own thread and calls `lose` when the peer is gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from minedraft.errors import InvalidRequestError, ProtocolError
from minedraft.link.lost import LostLatch
from minedraft.link.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.link.endpoints import LinkCounters, OnLost
    from minedraft.packets.packet import DraftPacket
    from minedraft.packets.rows import Words
    from minedraft.packets.spec import LinkSpec

MAX_MALFORMED_IN_A_ROW = 3
"""Malformed packets in a row after which the link ends, instead of a wait at every step."""


class LinkReceiver:
    """A `DraftReceiver` and the sink its transport feeds. Made in the loop that takes from it.

    Args:
        spec: The link.
        vocab_size: Ids of the target are below it.
        description: What carries it, for people.
        on_lost: See `OnLost`.
        teardown: Frees what the transport holds; called once, when the link is lost or closed.
    """

    def __init__(
        self,
        spec: LinkSpec,
        *,
        vocab_size: int,
        description: str,
        on_lost: OnLost,
        teardown: Callable[[], None],
    ) -> None:
        if vocab_size < 1:
            raise InvalidRequestError(f"vocab_size={vocab_size}: want > 0", field="vocab_size")
        self.description = description
        self._layout = spec.layout
        self._vocab_size = vocab_size
        self._mailbox = Mailbox(spec.epoch)
        self._latch = LostLatch(spec.epoch, on_lost)
        self._teardown = teardown
        self._num_malformed = 0  # these three belong to the transport's thread
        self._malformed_in_a_row = 0
        self._num_bad_rows = 0

    @property
    def counters(self) -> LinkCounters:
        """See `DraftReceiver`."""
        return replace(
            self._mailbox.counters, malformed=self._num_malformed, bad_rows=self._num_bad_rows
        )

    @property
    def is_open(self) -> bool:
        """Whether the link still stands."""
        return self._latch.is_open

    async def take(self, batch: int, step_id: int, timeout_s: float) -> DraftPacket | None:
        """See `DraftReceiver`."""
        return await self._mailbox.take(batch, step_id, timeout_s)

    def close(self) -> None:
        """See `DraftReceiver`."""
        if self._latch.shut():
            self._mailbox.lose()
            self._teardown()

    def feed(self, words: Words) -> None:
        """Take in what the peer sent. From the transport's one thread."""
        if not self.is_open or self._layout.is_heartbeat(words):
            return
        try:
            packet = self._layout.decode(words, self._vocab_size)
        except ProtocolError as err:
            self._refuse(str(err))
            return
        self._malformed_in_a_row = 0
        self._num_bad_rows += packet.num_bad_rows
        self._mailbox.post(packet)

    def feed_bytes(self, data: bytes) -> None:
        """Like `feed`, of bytes of any length."""
        try:
            words = self._layout.from_bytes(data)
        except ProtocolError as err:
            self._refuse(str(err))
            return
        self.feed(words)

    def lose(self, reason: str) -> None:
        """Report that the peer is gone. From any thread; only the first call counts."""
        if self._latch.shut():
            self._mailbox.lose()
            self._teardown()
            self._latch.report(reason)

    def _refuse(self, reason: str) -> None:
        self._num_malformed += 1
        self._malformed_in_a_row += 1
        if self._malformed_in_a_row >= MAX_MALFORMED_IN_A_ROW:
            self.lose(f"{self._malformed_in_a_row} malformed packets in a row; the last: {reason}")
