"""Orders token links: numbers each attempt, sends the order to both ends, returns the result.

A link is a draft source's; what a number stands for is told in `core.draft_source`. Every attempt
has a new name too, because a failed rendezvous leaves its name dirty.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import MineDraftError, WorkerUnavailableError
from minedraft.packets.spec import LinkSpec
from minedraft.services.coordinator.core.draft_source import DraftSource
from minedraft.services.coordinator.workers.transport_choice import TransportChoice
from minedraft.types import Acceptance

if TYPE_CHECKING:
    from minedraft.packets.spec import Transport
    from minedraft.plans import WorkerInfo
    from minedraft.services.coordinator.config import CoordinatorConfig
    from minedraft.services.coordinator.workers.members import Member
    from minedraft.transport.worker_client import DrafterConnection, VerifierConnection
    from minedraft.types import ModelInfo

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Linker:
    """Forms links between the verifier and drafters.

    Args:
        config: Transport and limits.
        verifier: The one receiving end.
    """

    config: CoordinatorConfig
    verifier: Member[VerifierConnection]
    num_begun: int = 0
    """Attempts so far; the last one's number."""
    _choice: TransportChoice = field(init=False)

    def __post_init__(self) -> None:
        self._choice = TransportChoice(self.config.link, self.verifier.address)

    def begin(self, drafter: Member[DrafterConnection], model: ModelInfo) -> DraftSource:
        """Number an attempt to have a drafter draft with a model over a link of its own."""
        self.num_begun += 1
        source = DraftSource(self.num_begun, model)
        drafter.begin(source)
        return source

    def check(self, drafter: WorkerInfo) -> None:
        """Check that a drafter can be linked to the verifier.

        Raises:
            IncompatibleWorkerError: they share no transport, or not the one configured.
        """
        if self.verifier.info is not None:
            self._choice.choose(self.verifier.info, drafter)

    async def form(self, drafter: Member[DrafterConnection], source: DraftSource) -> None:
        """Form the link of a source; if that fails the source is over.

        Args:
            drafter: The sending end.
            source: From `begin`: the caller knows what may be left of it at the drafter.

        Raises:
            IncompatibleWorkerError: they share no transport, or not the one configured.
            MineDraftError: it did not form, or broke, or an end left meanwhile.
        """
        try:
            source.description = await self._form(drafter, source)
        except BaseException:
            source.end()
            raise

    async def _form(self, drafter: Member[DrafterConnection], source: DraftSource) -> str:
        sender, receiver = drafter.connection, self.verifier.connection
        near, far = self.verifier.info, drafter.info
        if sender is None or receiver is None or near is None or far is None:
            raise WorkerUnavailableError("link: one of its ends is not there")
        spec = self._spec(source.source_id, near, self._choice.choose(near, far))
        try:
            async with asyncio.TaskGroup() as group:
                forming = group.create_task(receiver.form_link(spec), name="link verifier")
                sending = group.create_task(sender.form_link(spec), name="link drafter")
        except* MineDraftError as failed:
            if drafter.connection is sender and self.verifier.connection is receiver:
                self._note_failure(spec.transport, near, far)
            raise failed.exceptions[0] from None
        if drafter.connection is not sender or self.verifier.connection is not receiver:
            raise WorkerUnavailableError("link: one of its ends left while it was formed")
        if source.is_gone:  # one end stood, and broke, before the other had answered
            raise WorkerUnavailableError(
                f"link {source.source_id} was lost as soon as it was formed"
            )
        sending.result()  # a group takes a call that was cancelled for one that ended quietly
        failed_before = ", ".join(each.value for each in self._choice.failed(near, far))
        note = f" (auto: {failed_before} did not form)" if failed_before else ""
        return forming.result() + note

    def _note_failure(self, transport: Transport, near: WorkerInfo, far: WorkerInfo) -> None:
        self._choice.note_failure(transport, near, far)
        following = self._choice.choose(near, far)
        if following is not transport:
            log.warning(
                "link.falls_back",
                failed=transport.value,
                to=following.value,
                drafter=far.identity.instance_id,
            )

    def _spec(self, epoch: int, verifier: WorkerInfo, transport: Transport) -> LinkSpec:
        is_rejection = verifier.acceptance == Acceptance.REJECTION.value
        return LinkSpec(
            epoch=epoch,
            name=f"{secrets.token_hex(4)}.{epoch}",
            transport=transport,
            max_rows=self.config.max_rows,
            max_draft_tokens=self.config.max_draft_tokens,
            q_width=self.config.q_width if is_rejection else 0,
            verifier_address=verifier.link_address or self.verifier.address,
            timeout_s=self.config.link_timeout_s,
        )
