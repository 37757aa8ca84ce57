"""Handles plans and link orders of the verifier. Waits, never computes."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import WorkerUnavailableError
from minedraft.link.form import available_transports, form_receiver
from minedraft.plans import LinkLost, WorkerInfo
from minedraft.repeats import Repeats
from minedraft.transport.ranges import check_vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from minedraft.link.endpoints import DraftReceiver
    from minedraft.link.options import LinkOptions
    from minedraft.model.executor import DeviceExecutor
    from minedraft.packets.packet import DraftPacket
    from minedraft.packets.spec import LinkSpec
    from minedraft.plans import StepBegun, VerifyPlan, VerifyResult, WorkerIdentity
    from minedraft.services.verifier.verify_engine import VerifyEngine
    from minedraft.transport.rendezvous import Rendezvous
    from minedraft.types import ModelInfo

log = structlog.get_logger(__name__)

_MAX_LOST = 16


class Handler:
    """See `transport.worker_service.VerifierHandler`."""

    def __init__(
        self,
        *,
        engine: VerifyEngine,
        executor: DeviceExecutor,
        identity: WorkerIdentity,
        model: ModelInfo,
        acceptance: str,
        rendezvous: Rendezvous,
        link_options: LinkOptions,
        link_address: str,
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._rendezvous = rendezvous
        self._link_options = link_options
        self._info = WorkerInfo(
            identity=identity,
            model=model,
            transports=available_transports(link_options),
            acceptance=acceptance,
            link_address=link_address,
        )
        self._receivers: dict[int, DraftReceiver] = {}
        """By epoch: one per drafter, two while a drafter is swapped."""
        self._lost: set[int] = set()
        """Recent epochs that were lost before they were entered."""
        self._repeats = Repeats()
        self._session = 0
        """Sessions begun. Every coordinator numbers its links from 1: an epoch is its session's."""
        self.push: Callable[[LinkLost], None] = lambda _lost: None
        """Sends a note to the coordinator; set by the composition root."""

    def info(self) -> WorkerInfo:
        """Who and what this is."""
        return self._info

    async def begin_session(self) -> None:
        """Forget all rows and the old coordinator's links."""
        self._session += 1
        self._lost.clear()
        self.close()
        await self._executor.run(self._engine.reset)

    async def form_link(self, spec: LinkSpec) -> str:
        """Form the receiving end of a new link; others stay until their senders end them."""
        loop = asyncio.get_running_loop()
        session = self._session

        def on_lost(epoch: int, reason: str) -> None:
            loop.call_soon_threadsafe(self._on_lost, LinkLost(epoch, reason), session)

        receiver = await form_receiver(
            spec,
            on_lost=on_lost,
            vocab_size=self._info.model.vocab_size,
            rendezvous=self._rendezvous,
            options=self._link_options,
        )
        if session != self._session:
            receiver.close()
            raise WorkerUnavailableError(f"link {spec.epoch}: another session began meanwhile")
        if spec.epoch in self._lost:
            receiver.close()
            raise WorkerUnavailableError(f"link {spec.epoch} was lost while it was formed")
        self._receivers[spec.epoch] = receiver
        log.info("link.formed", epoch=spec.epoch, transport=receiver.description)
        return receiver.description

    def drafts(self, plan: VerifyPlan) -> Coroutine[Any, Any, DraftPacket | None] | None:
        """What waits for a step's drafts; None if no link brings any."""
        receiver = self._receivers.get(plan.source)
        return None if receiver is None else self._take(receiver, plan)

    async def start_plan(
        self, plan: VerifyPlan, arrived_ns: int, packet: DraftPacket | None, ready_ns: int
    ) -> asyncio.Future[VerifyResult | StepBegun | LinkLost | None]:
        """Queue a step for the device.

        Raises:
            ProtocolError: a token of a row is none of the model's.
        """
        check_vocabulary(plan, self._info.model.vocab_size)
        return self._executor.submit(
            self._engine.step, plan, packet, plan_ns=arrived_ns, drafts_ns=ready_ns
        )

    def close(self) -> None:
        """Drop all links."""
        for epoch, receiver in self._receivers.items():
            receiver.close()
            log.info("link.closed", epoch=epoch, **asdict(receiver.counters))
        self._receivers.clear()

    async def _take(self, receiver: DraftReceiver, plan: VerifyPlan) -> DraftPacket | None:
        packet = await receiver.take(plan.batch, plan.step_id, plan.draft_timeout_ns / 1e9)
        if packet is None or packet.num_bad_rows:
            what = "drafts.missing" if packet is None else "drafts.malformed"
            repeated = self._repeats.facts(f"{what} {plan.source}")
            if repeated is not None:
                counted = asdict(receiver.counters)
                log.info(what, step_id=plan.step_id, source=plan.source, **counted, **repeated)
        return packet

    def _on_lost(self, lost: LinkLost, session: int) -> None:
        if session != self._session:
            return
        receiver = self._receivers.pop(lost.epoch, None)
        if receiver is None:
            self._lost = {*sorted(self._lost)[-_MAX_LOST:], lost.epoch}  # it may be in the making
        else:
            receiver.close()
            counted = asdict(receiver.counters)
            log.warning("link.lost", epoch=lost.epoch, reason=lost.reason, **counted)
            self.push(lost)
