"""Keeps all workers connected: one task each dials, shakes hands and runs the session.

Workers are compared before they are used: a drafter that does not fit is refused and said so in the
status, and the service goes on without it. Whoever fits is linked (`link_keeper`). Whatever a
worker breaks stays with it (`supervised`); one that owes an answer too long is left (`watchdog`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from logging import INFO
from typing import TYPE_CHECKING

from minedraft.errors import (
    IncompatibleWorkerError,
    MineDraftError,
    PreconditionError,
    ProtocolError,
    StateError,
    WorkerHeldError,
    WorkerUnavailableError,
)
from minedraft.plans import MAX_BATCHES, LinkLost, StepBegun, WorkerUsage
from minedraft.services.coordinator.workers.claims import Claims
from minedraft.services.coordinator.workers.discovery import DrafterName
from minedraft.services.coordinator.workers.handshake import check_drafter, check_verifier
from minedraft.services.coordinator.workers.hold import NOT_HELD, Hold
from minedraft.services.coordinator.workers.link_keeper import LinkKeeper
from minedraft.services.coordinator.workers.links import Linker
from minedraft.services.coordinator.workers.members import Member
from minedraft.services.coordinator.workers.supervised import Supervised
from minedraft.services.coordinator.workers.watchdog import Watchdog
from minedraft.transport.worker_client import DrafterConnection, VerifierConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from minedraft.admin import WorkerStatus
    from minedraft.security.credentials import Credentials
    from minedraft.services.coordinator.config import CoordinatorConfig
    from minedraft.services.coordinator.engine import Engine
    from minedraft.transport.fence import Coordinator
    from minedraft.types import ModelInfo

_HANDSHAKE_S = 5.0
_RESOLVE_S = 2.0
_HELD_S = 1.0
"""Pause before a worker that serves another coordinator is asked again."""
_KEEP_DRAFTERS_S = 15.0
"""Longest that drafters are kept without a verifier: whoever holds that one needs them."""


class Membership:
    """See the module docstring.

    Args:
        config: Addresses, transport, limits.
        engine: Told of comings and goings.
        tokenizer_fingerprint: Of the coordinator's own tokenizer; "": not compared.
        credentials: Who this coordinator is to its workers.
        num_token_ids: Of that tokenizer; a model's vocabulary may be padded beyond them.
        coordinator: Who this is to its workers: each serves one at a time.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        engine: Engine,
        tokenizer_fingerprint: str,
        credentials: Credentials | None = None,
        *,
        num_token_ids: int = 0,
        coordinator: Coordinator | None = None,
    ) -> None:
        self.engine = engine
        self.verifier: Member[VerifierConnection] = Member("verifier", config.verifier)
        names = [DrafterName.parse(address) for address in config.drafters]
        self.drafters: list[Member[DrafterConnection]] = [
            Member("drafter", address)
            for address, name in zip(config.drafters, names, strict=True)
            if name is None
        ]
        self._names = [name for name in names if name is not None]
        self.model: ModelInfo | None = None
        """The target; stays when the verifier goes, and the next one must have the same."""
        self.acceptance = ""
        self.linker = Linker(config, self.verifier)
        self.links = LinkKeeper(self.linker, self.drafters, engine, config.reconnect_s)
        self._reconnect_s = config.reconnect_s
        self._fingerprint = tokenizer_fingerprint
        self.num_token_ids = num_token_ids
        self._credentials = credentials
        self._coordinator = coordinator
        self._hold = Hold(_KEEP_DRAFTERS_S)
        self._claims = Claims()
        self._stalled: VerifierConnection | None = None
        """The last one that was left because it did not answer."""
        self._watchdog: Watchdog[Member[Any]] = Watchdog(
            config.step_timeout_s, self._owed, self._leave_stalled
        )
        # A step may be overtaken while it waits for drafts; behind each step of the other batches
        # it would have run.
        self._overtaking: Watchdog[Member[Any]] = Watchdog(
            config.step_timeout_s * (MAX_BATCHES + 1), self._overtaken, self._leave_stalled
        )
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[Member[DrafterConnection], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Keep everybody connected until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(
                self._keep(self.verifier, self._verifier_session), name="member verifier"
            )
            for member in self.drafters:
                self._dial(member)
            for name in self._names:
                group.create_task(self._follow(name), name=f"name {name.host}")
            group.create_task(self.links.run(), name="member links")
            watch = Supervised("watch.failed", first_pause_s=self._reconnect_s)
            group.create_task(watch.forever(self._watchdog.run), name="member watch")
            watch = Supervised("watch.failed", first_pause_s=self._reconnect_s)
            group.create_task(watch.forever(self._overtaking.run), name="member overtaking")

    def status(self) -> tuple[WorkerStatus, ...]:
        """All workers."""
        return (self.verifier.status(), *(member.status() for member in self.drafters))

    def join(self, member: Member[DrafterConnection]) -> None:
        """Dial one more drafter; whoever calls this links it."""
        self.drafters.append(member)
        self._dial(member)

    async def leave(self, member: Member[DrafterConnection]) -> None:
        """Let a drafter go. One that has left already is fine."""
        if member not in self.drafters:
            return
        self.drafters.remove(member)
        task = self._tasks.pop(member)
        task.cancel()
        await asyncio.wait((task,))

    # -- sessions ---------------------------------------------------------------------------

    def _dial(self, member: Member[DrafterConnection]) -> None:
        if self._group is not None:
            self._tasks[member] = self._group.create_task(
                self._keep(member, self._drafter_session), name=f"member {member.address}"
            )

    async def _keep(
        self,
        member: Member[Any],
        session: Callable[[Member[Any], Supervised], Coroutine[Any, Any, None]],
    ) -> None:
        peer = Supervised(
            "worker.lost",
            first_pause_s=self._reconnect_s,
            role=member.role,
            address=member.address,
        )
        while True:
            with peer.attempt():
                await session(member, peer)
            member.last_error = peer.reason
            is_refusal = isinstance(peer.error, IncompatibleWorkerError | PreconditionError)
            member.refusal = peer.error if is_refusal else None
            if isinstance(peer.error, WorkerHeldError):
                member.retry_s = _HELD_S
                peer.started_over()  # it works, for another one: no pause grows by that
                if member is self.verifier:
                    self._give_drafters_back()
            pause_s, member.retry_s = member.retry_s or peer.pause_s, 0.0
            at_once, member.retry_at_once = member.retry_at_once, None
            if at_once is None:
                await asyncio.sleep(pause_s)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(at_once.wait(), pause_s)

    def _give_drafters_back(self) -> None:
        """Another coordinator holds the verifier, so it needs them."""
        self._hold.refused()
        for drafter in self.drafters:
            drafter.last_error = NOT_HELD

    async def _verifier_session(self, member: Member[VerifierConnection], peer: Supervised) -> None:
        connection = VerifierConnection(
            member.address, self._credentials, coordinator=self._coordinator
        )
        by_failure = has_vanished = False
        try:
            info = await connection.get_info(_HANDSHAKE_S)
            check_verifier(
                info,
                tokenizer_fingerprint=self._fingerprint,
                known=self.model,
                known_acceptance=self.acceptance,
                num_token_ids=self.num_token_ids,
            )
            self.engine.core.decider.check_verifier(info.acceptance)
            async with connection.session(_HANDSHAKE_S) as answers:
                self.model, self.acceptance = info.model, info.acceptance
                before = member.info.identity if member.info else info.identity
                member.info, member.connection, member.last_error = info, connection, ""
                peer.works()
                peer.say("worker.joined", level=INFO, instance_id=info.identity.instance_id)
                self._hold.taken()
                self.engine.verifier_up(
                    info.model,
                    connection.send,
                    is_new=info.identity.instance_id != before.instance_id,
                )
                self.links.look()
                async for answer in answers:
                    if isinstance(answer, LinkLost):
                        self.links.lost(answer)
                    elif isinstance(answer, StepBegun):
                        self.engine.core.on_step_begun(answer)
                    else:
                        self.engine.on_verify_result(answer)
        except MineDraftError as err:
            by_failure = isinstance(err, ProtocolError | StateError)
            has_vanished = isinstance(err, WorkerUnavailableError)
            raise
        except Exception:  # this side failed at what it answered
            by_failure = True
            raise
        finally:
            if member.connection is not None:
                member.connection = None
                for drafter in self.drafters:
                    self.links.unlink(drafter)
                is_stalled = connection is self._stalled
                self._hold.lost()
                self.engine.verifier_lost(
                    by_failure=by_failure or is_stalled,
                    may_have_died=has_vanished and not is_stalled,
                )
            await connection.close()

    def _owed(self) -> dict[Member[Any], int]:
        """Who owes which step."""
        owed: dict[Member[Any], int] = {}
        if self.verifier.connection is not None:
            owed[self.verifier] = self.engine.core.owed_by_verifier
        for drafter in self.drafters:
            if drafter.connection is not None:
                owed[drafter] = max((each.owed_step for each in drafter.sources), default=0)
        return owed

    def _overtaken(self) -> dict[Member[Any], int]:
        """The oldest step of the verifier, whatever others it runs."""
        return {self.verifier: self.engine.core.oldest_step} if self.verifier.connection else {}

    async def _leave_stalled(self, member: Member[Any], waited_s: float) -> None:
        """End the session of a worker that does not answer: no step may take for ever."""
        connection: VerifierConnection | DrafterConnection | None = member.connection
        if connection is None:
            return
        if connection is self.verifier.connection:
            self._stalled = connection
        why = (
            f"{member.role} {member.address} has not answered for {waited_s:.1f} s: step_timeout_s"
        )
        await connection.close(WorkerUnavailableError(why))

    async def _drafter_session(self, member: Member[DrafterConnection], peer: Supervised) -> None:
        await self._hold.wait()  # until then there is nothing to compare it with, either
        connection = DrafterConnection(
            member.address,
            self._credentials,
            server_name=member.server_name,
            coordinator=self._coordinator,
        )
        try:
            info = await connection.get_info(_HANDSHAKE_S)
            check_drafter(info, self.model, self.num_token_ids)
            member.info = info
            self.linker.check(info)
            await self._claims.check(member, info.identity.instance_id, connection)
            with self._claims.claimed(member, info.identity.instance_id):
                async with (
                    self._hold.lasts(),
                    connection.session(_HANDSHAKE_S) as answers,
                ):
                    member.connection, member.last_error = connection, ""
                    peer.works()
                    peer.say("worker.joined", level=INFO, instance_id=info.identity.instance_id)
                    self.links.look()
                    async for answer in answers:
                        if isinstance(answer, LinkLost):
                            self.links.lost(answer, by=member)
                        elif isinstance(answer, WorkerUsage):
                            member.usage = answer
                        elif any(
                            each.source_id == answer.epoch and each.is_linked
                            for each in member.sources
                        ):  # else of a link that is over
                            self.engine.on_draft_result(answer)
        finally:
            if member.connection is not None:
                member.connection = member.usage = None
                self.links.unlink(member)
            await connection.close()

    async def _follow(self, name: DrafterName) -> None:
        """Every address of a name is a drafter; one that left the name goes when it is lost.

        An address that is a member for another reason is left to that.
        """
        known: dict[str, Member[DrafterConnection]] = {}
        peer = Supervised("name.failed", first_pause_s=self._reconnect_s, name=name.host)
        while True:
            with peer.attempt():
                addresses = await name.resolve()
                if addresses is not None:
                    for address in addresses - known.keys() - {m.address for m in self.drafters}:
                        known[address] = Member("drafter", address, server_name=name.host)
                        self.join(known[address])
                    for address in known.keys() - addresses:
                        if known[address].connection is None:
                            await self.leave(known.pop(address))
            await asyncio.sleep(max(peer.pause_s, _RESOLVE_S))
