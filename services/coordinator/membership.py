"""Which workers are there: dial, handshake, sessions, and the token link between two of them.

One task a worker dials it for ever; one task forms the link whenever a verifier and a drafter are
there and no link is. Every link has a new epoch and every attempt a new name, because a failed
rendezvous leaves its name dirty. Workers are compared before they are used: a drafter that does
not fit is refused and said so in the status, and the service goes on without it.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from minedraft.admin import WorkerStatus
from minedraft.errors import IncompatibleWorkerError, MineDraftError
from minedraft.link.spec import LinkSpec, Transport
from minedraft.plans import PROTOCOL_VERSION, LinkLost, WorkerIdentity
from minedraft.transport.worker_client import DrafterConnection, VerifierConnection
from minedraft.types import Acceptance, ModelInfo

if TYPE_CHECKING:
    from minedraft.plans import WorkerInfo
    from minedraft.security.credentials import Credentials
    from minedraft.services.coordinator.config import CoordinatorConfig
    from minedraft.services.coordinator.engine import Engine

log = structlog.get_logger(__name__)

_HANDSHAKE_S = 5.0
_NOBODY = WorkerIdentity("", 0, 0, 0, "")
_NO_MODEL = ModelInfo("", 0, 0, "", "")


@dataclass(slots=True)
class Member:
    """One worker, as far as it is known."""

    role: str
    address: str
    info: WorkerInfo | None = None
    connection: VerifierConnection | DrafterConnection | None = None
    """Set while a session is open."""
    link_epoch: int = 0
    link_description: str = ""
    last_error: str = ""

    def status(self) -> WorkerStatus:
        """For the operator."""
        return WorkerStatus(
            role=self.role,
            address=self.address,
            connected=self.connection is not None,
            identity=self.info.identity if self.info else _NOBODY,
            model=self.info.model if self.info else _NO_MODEL,
            link_epoch=self.link_epoch,
            link_description=self.link_description,
            last_error=self.last_error,
        )


@dataclass(slots=True)
class Membership:
    """See the module docstring.

    Args:
        config: Addresses, transport, limits.
        engine: Told of comings and goings.
        tokenizer_fingerprint: Of the coordinator's own tokenizer; "": not compared.
        credentials: Who this coordinator is to its workers.
    """

    config: CoordinatorConfig
    engine: Engine
    tokenizer_fingerprint: str
    credentials: Credentials | None = None
    verifier: Member = field(init=False)
    drafters: list[Member] = field(init=False)
    model: ModelInfo | None = None
    """The target; stays when the verifier goes, and the next one must have the same."""
    acceptance: str = ""
    _epoch: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.verifier = Member("verifier", self.config.verifier)
        self.drafters = [Member("drafter", address) for address in self.config.drafters]

    async def run(self) -> None:
        """Keep everybody connected until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(self.verifier), name="member verifier")
            for member in self.drafters:
                group.create_task(self._keep(member), name=f"member {member.address}")
            group.create_task(self._keep_linked(), name="member link")

    def status(self) -> tuple[WorkerStatus, ...]:
        """All workers."""
        return tuple(member.status() for member in (self.verifier, *self.drafters))

    # -- sessions ---------------------------------------------------------------------------

    async def _keep(self, member: Member) -> None:
        while True:
            try:
                if member is self.verifier:
                    await self._verifier_session(member)
                else:
                    await self._drafter_session(member)
            except MineDraftError as err:
                if member.last_error != str(err):
                    log.warning(
                        "worker.lost", role=member.role, address=member.address, why=str(err)
                    )
                member.last_error = str(err)
            await asyncio.sleep(self.config.reconnect_s)

    async def _verifier_session(self, member: Member) -> None:
        connection = VerifierConnection(member.address, self.credentials)
        try:
            info = await connection.get_info(_HANDSHAKE_S)
            self._check_verifier(info)
            async with connection.session(_HANDSHAKE_S) as answers:
                self.model, self.acceptance = info.model, info.acceptance
                member.info, member.connection, member.last_error = info, connection, ""
                log.info("worker.joined", role=member.role, address=member.address)
                self.engine.verifier_up(info.model, connection.send)
                self._changed.set()
                async for answer in answers:
                    if isinstance(answer, LinkLost):
                        self._link_lost(answer)
                    else:
                        self.engine.on_verify_result(answer)
        finally:
            if member.connection is not None:
                member.connection = None
                self._unlink()
                self.engine.verifier_lost()
            await connection.close()

    async def _drafter_session(self, member: Member) -> None:
        connection = DrafterConnection(member.address, self.credentials)
        try:
            info = await connection.get_info(_HANDSHAKE_S)
            member.info = info
            self._check_drafter(info)
            async with connection.session(_HANDSHAKE_S) as answers:
                member.connection, member.last_error = connection, ""
                log.info("worker.joined", role=member.role, address=member.address)
                self._changed.set()
                async for answer in answers:
                    if isinstance(answer, LinkLost):
                        self._link_lost(answer)
                    else:
                        self.engine.on_draft_result(answer)
        finally:
            if member.connection is not None:
                member.connection = None
                if member.link_epoch:
                    self._unlink()
            await connection.close()

    # -- handshake --------------------------------------------------------------------------

    def _check_verifier(self, info: WorkerInfo) -> None:
        _check_protocol(info)
        mine, theirs = self.tokenizer_fingerprint, info.model.tokenizer_fingerprint
        if mine and theirs != mine:
            raise IncompatibleWorkerError(
                f"verifier {info.model.name}: tokenizer fingerprint {theirs[:12]}, "
                f"the coordinator's tokenizer has {mine[:12]}"
            )
        known = self.model
        if known is not None and _essence(known) != _essence(info.model):
            raise IncompatibleWorkerError(
                f"verifier came back with another model: {_essence(info.model)}, "
                f"was {_essence(known)}"
            )

    def _check_drafter(self, info: WorkerInfo) -> None:
        _check_protocol(info)
        if self.model is None:
            raise IncompatibleWorkerError("no verifier yet to compare this drafter with")
        mine, theirs = self.model.tokenizer_fingerprint, info.model.tokenizer_fingerprint
        if mine != theirs:
            raise IncompatibleWorkerError(
                f"drafter {info.model.name} has another vocabulary than the target "
                f"{self.model.name}: tokenizer fingerprints {theirs[:12]} and {mine[:12]}, "
                f"vocabulary sizes {info.model.vocab_size} and {self.model.vocab_size}"
            )

    # -- link -------------------------------------------------------------------------------

    async def _keep_linked(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            drafter = next((m for m in self.drafters if m.connection is not None), None)
            if self._epoch_in_use or drafter is None or self.verifier.connection is None:
                continue
            try:
                await self._form(drafter)
            except* MineDraftError as group:
                drafter.last_error = f"link: {group.exceptions[0]}"
                log.warning("link.failed", drafter=drafter.address, why=drafter.last_error)
                await asyncio.sleep(self.config.reconnect_s)
                self._changed.set()

    @property
    def _epoch_in_use(self) -> int:
        return self.engine.core.epoch

    async def _form(self, drafter: Member) -> None:
        verifier_side, drafter_side = self.verifier.connection, drafter.connection
        if not isinstance(verifier_side, VerifierConnection) or not isinstance(
            drafter_side, DrafterConnection
        ):
            return
        if self.verifier.info is None or drafter.info is None:
            return
        self._epoch += 1
        is_rejection = self.acceptance == Acceptance.REJECTION.value
        spec = LinkSpec(
            epoch=self._epoch,
            name=f"{secrets.token_hex(4)}.{self._epoch}",
            transport=Transport(self.config.link),
            max_rows=self.config.max_rows,
            max_draft_tokens=self.config.max_draft_tokens,
            q_width=self.config.q_width if is_rejection else 0,
            verifier_address=self.verifier.info.link_address or self.verifier.address,
            timeout_s=self.config.link_timeout_s,
        )
        async with asyncio.TaskGroup() as group:
            forming = group.create_task(verifier_side.form_link(spec), name="link verifier")
            group.create_task(drafter_side.form_link(spec), name="link drafter")
        if self.verifier.connection is not verifier_side or drafter.connection is not drafter_side:
            return  # one of them left meanwhile; whoever comes back sets `_changed`
        drafter.link_epoch, drafter.link_description = spec.epoch, forming.result()
        drafter.last_error = ""
        log.info("link.up", epoch=spec.epoch, transport=drafter.link_description)
        self.engine.drafter_up(drafter.info.model, spec.epoch, drafter_side.send)

    def _link_lost(self, lost: LinkLost) -> None:
        if lost.epoch == self._epoch_in_use:
            log.warning("link.down", epoch=lost.epoch, why=lost.reason)
            self._unlink()

    def _unlink(self) -> None:
        for member in self.drafters:
            member.link_epoch, member.link_description = 0, ""
        self.engine.link_down()
        self._changed.set()


def _check_protocol(info: WorkerInfo) -> None:
    if info.identity.protocol_version != PROTOCOL_VERSION:
        raise IncompatibleWorkerError(
            f"{info.model.name}: protocol version {info.identity.protocol_version}, "
            f"this coordinator speaks {PROTOCOL_VERSION}"
        )


def _essence(model: ModelInfo) -> tuple[str, int, int, str]:
    return (model.tokenizer_fingerprint, model.vocab_size, model.max_model_len, model.dtype)
