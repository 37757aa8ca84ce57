"""Records the drafter process of each member's session: one process is one drafter.

A process has one session, so two members that stand for it under two addresses would take it from
each other for ever. What a process says of itself is not proof enough to keep another one out.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from minedraft.errors import PreconditionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.services.coordinator.workers.members import Member
    from minedraft.transport.worker_client import DrafterConnection

    Drafter = Member[DrafterConnection]

log = structlog.get_logger(__name__)

_SAME_PROCESS_S = 30.0
"""Back-off before redialling an address that turned out to be a drafter that is a member already;
over at once when that one's session is."""
_CALL_S = 5.0
_NO_LINK: Final = 2**64 - 1
"""An epoch that no link has."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A member's session with a process, from its handshake on."""

    instance_id: str
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class Claims:
    """See the module docstring."""

    def __init__(self) -> None:
        self._claims: dict[Drafter, _Claim] = {}

    async def check(self, member: Drafter, instance_id: str, connection: DrafterConnection) -> None:
        """Check that no other member's session is with the same process, before one is opened.

        If another one has the same instance id, the process is asked for something that it refuses
        to everybody whose session is not open there. One that obeys has our session already, under
        the other address; one that refuses is another process, and one of the two copies the id.

        Raises:
            PreconditionError: another member is that process.
            MineDraftError: it did not answer.
        """
        other = next((m for m, c in self._claims.items() if c.instance_id == instance_id), None)
        if other is None:
            return
        is_over = self._claims[other].is_over
        try:
            await connection.drop_link(_NO_LINK, _CALL_S)
        except PreconditionError:
            log.warning(
                "worker.same_id",
                address=member.address,
                other=other.address,
                instance_id=instance_id,
            )
            return
        member.retry_s, member.retry_at_once = _SAME_PROCESS_S, is_over
        raise PreconditionError(
            f"drafter {member.address} is a member already, as {other.address}: "
            f"both are instance {instance_id}"
        )

    @contextmanager
    def claimed(self, member: Drafter, instance_id: str) -> Iterator[None]:
        """Note which process a member's session is with, from before it is opened to its end."""
        claim = self._claims[member] = _Claim(instance_id)
        try:
            yield
        finally:
            del self._claims[member]
            claim.is_over.set()
