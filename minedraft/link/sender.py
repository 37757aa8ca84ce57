"""The drafter's end of a link whose transport has a thread of its own. Knows no transport.

The engine's thread encodes and queues; the transport's thread pulls from `outbox` and calls `lose`
when the peer is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.link.lost import LostLatch
from minedraft.link.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.link.endpoints import OnLost
    from minedraft.link.options import LinkOptions
    from minedraft.packets.packet import DraftPacket
    from minedraft.packets.spec import LinkSpec


class LinkSender:
    """A `DraftSender` with the queue that its transport empties.

    Args:
        spec: The link.
        options: Settings of this end.
        description: What carries it, for people.
        on_lost: See `OnLost`.
        teardown: Frees what the transport holds; called once, when the link is lost or closed.
    """

    def __init__(
        self,
        spec: LinkSpec,
        options: LinkOptions,
        *,
        description: str,
        on_lost: OnLost,
        teardown: Callable[[], None],
    ) -> None:
        self.description = description
        self._layout = spec.layout
        self.outbox = Outbox(self._layout.encode_heartbeat(spec.epoch), options.heartbeat_s)
        self._latch = LostLatch(spec.epoch, on_lost)
        self._teardown = teardown

    @property
    def is_open(self) -> bool:
        """Whether the link still stands."""
        return self._latch.is_open

    def send(self, packet: DraftPacket) -> None:
        """See `DraftSender`."""
        self.outbox.put(self._layout.encode(packet))

    def close(self) -> None:
        """See `DraftSender`."""
        if self._latch.shut():
            self.outbox.close()
            self._teardown()

    def lose(self, reason: str) -> None:
        """Report that the peer is gone. From any thread; only the first call counts."""
        if self._latch.shut():
            self.outbox.close()
            self._teardown()
            self._latch.report(reason)
