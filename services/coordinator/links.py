"""Forming token links: numbers them, gives both ends the order, says what came of it.

Every link has a new epoch and every attempt a new name, because a failed rendezvous leaves its
name dirty.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.errors import MineDraftError, WorkerUnavailableError
from minedraft.link.spec import LinkSpec, Transport
from minedraft.types import Acceptance

if TYPE_CHECKING:
    from minedraft.services.coordinator.config import CoordinatorConfig
    from minedraft.services.coordinator.members import Member
    from minedraft.transport.worker_client import DrafterConnection, VerifierConnection


@dataclass(frozen=True, slots=True)
class Formed:
    """A link that stands."""

    epoch: int
    description: str


@dataclass(slots=True)
class Linker:
    """Forms links between the verifier and drafters.

    Args:
        config: Transport and limits.
        verifier: The one receiving end.
    """

    config: CoordinatorConfig
    verifier: Member[VerifierConnection]
    _epoch: int = 0

    async def form(self, drafter: Member[DrafterConnection]) -> Formed:
        """Form a link to a drafter.

        Raises:
            MineDraftError: it did not form, or an end left meanwhile.
        """
        sender, receiver = drafter.connection, self.verifier.connection
        if sender is None or receiver is None or self.verifier.info is None:
            raise WorkerUnavailableError("link: one of its ends is not there")
        spec = self._spec(self.verifier.info.acceptance, self.verifier.info.link_address)
        try:
            async with asyncio.TaskGroup() as group:
                forming = group.create_task(receiver.form_link(spec), name="link verifier")
                group.create_task(sender.form_link(spec), name="link drafter")
        except* MineDraftError as failed:
            raise failed.exceptions[0] from None
        if drafter.connection is not sender or self.verifier.connection is not receiver:
            raise WorkerUnavailableError("link: one of its ends left while it was formed")
        return Formed(spec.epoch, forming.result())

    def _spec(self, acceptance: str, link_address: str) -> LinkSpec:
        self._epoch += 1
        is_rejection = acceptance == Acceptance.REJECTION.value
        return LinkSpec(
            epoch=self._epoch,
            name=f"{secrets.token_hex(4)}.{self._epoch}",
            transport=Transport(self.config.link),
            max_rows=self.config.max_rows,
            max_draft_tokens=self.config.max_draft_tokens,
            q_width=self.config.q_width if is_rejection else 0,
            verifier_address=link_address or self.verifier.address,
            timeout_s=self.config.link_timeout_s,
        )
