"""The two ends of a token link, as protocols for the engines. No transport, no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from minedraft.packets.packet import DraftPacket

OnLost: TypeAlias = Callable[[int, str], None]
"""Called with (epoch, reason) when the link breaks, from any thread: at most once per endpoint,
and never after the owner's own `close`."""


@dataclass(frozen=True, slots=True)
class LinkCounters:
    """What a receiver has seen; every number only grows.

    The verifier logs it when drafts are missing or malformed, and when the link ends. Late packets:
    the drafter or its network is too slow for the draft timeout. Malformed packets and rows, or
    wrong epochs: the drafter is broken; replace it.
    """

    received: int = 0
    """Well-formed draft packets."""
    wrong_epoch: int = 0
    """Dropped: of another link."""
    late: int = 0
    """Dropped: older than the newest step taken of its batch, or after its take gave up."""
    duplicate: int = 0
    """Dropped: a second packet for a step."""
    overflow: int = 0
    """Dropped: more packets than the mailbox holds."""
    malformed: int = 0
    """Dropped: not a packet."""
    bad_rows: int = 0
    """Rows that lost their drafts because they were malformed."""


class DraftSender(Protocol):
    """The drafter's end."""

    @property
    def description(self) -> str:
        """Description of the transport, for people."""

    def send(self, packet: DraftPacket) -> None:
        """Queue a packet; drop it if the link is lost. Never blocks. From any thread.

        Raises:
            StateError: the packet does not fit the link's layout.
        """

    def close(self) -> None:
        """End the link in bounded time. From any thread; idempotent."""


class DraftReceiver(Protocol):
    """The verifier's end."""

    @property
    def description(self) -> str:
        """Description of the transport, for people."""

    @property
    def counters(self) -> LinkCounters:
        """What was received and dropped so far."""

    async def take(self, batch: int, step_id: int, timeout_s: float) -> DraftPacket | None:
        """Wait for the packet of a step; earlier steps of its batch are given up.

        Args:
            batch: Of the step. Other batches' steps may be waited for at the same time.
            step_id: The step to be verified; those of one batch are taken in rising order.
            timeout_s: Seconds to wait; 0 takes only what is already here.

        Returns:
            The packet; None after `timeout_s`, or at once when the link is lost or closed, or for
            a step that was asked for before.
        """

    def close(self) -> None:
        """End the link in bounded time. From any thread; idempotent."""
