"""What the drafter does with plans and link orders. Waits, never computes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from minedraft.link.form import form_sender
from minedraft.plans import LinkLost, WorkerInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.link.endpoints import DraftSender
    from minedraft.link.spec import LinkOptions, LinkSpec
    from minedraft.model.executor import DeviceExecutor
    from minedraft.plans import DraftPlan, DraftResult, WorkerIdentity
    from minedraft.services.drafter.draft_engine import DraftEngine
    from minedraft.types import ModelInfo

log = structlog.get_logger(__name__)

TRANSPORTS = ("local", "gloo", "grpc")


class Handler:
    """See `transport.worker_service.DrafterHandler`."""

    def __init__(
        self,
        *,
        engine: DraftEngine,
        executor: DeviceExecutor,
        identity: WorkerIdentity,
        model: ModelInfo,
        link_options: LinkOptions,
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._link_options = link_options
        self._info = WorkerInfo(identity=identity, model=model, transports=TRANSPORTS)
        self._sender: DraftSender | None = None
        self._epoch = 0
        self.push: Callable[[LinkLost], None] = lambda _lost: None
        """Sends a note to the coordinator; set by the composition root."""

    def info(self) -> WorkerInfo:
        """Who and what this is."""
        return self._info

    async def begin_session(self) -> None:
        """Forget all rows and the old coordinator's link."""
        self._drop_link()
        await self._executor.run(self._engine.reset)

    async def form_link(self, spec: LinkSpec) -> str:
        """Form the sending end of a new link and start over: no row survives an epoch."""
        self._drop_link()
        loop = asyncio.get_running_loop()

        def on_lost(epoch: int, reason: str) -> None:
            loop.call_soon_threadsafe(self._on_lost, LinkLost(epoch, reason))

        sender = await form_sender(spec, on_lost=on_lost, options=self._link_options)
        self._drop_link()  # two orders at once: the later one wins
        await self._executor.run(self._engine.reset, spec.q_width)
        self._sender, self._epoch = sender, spec.epoch
        log.info("link.formed", epoch=spec.epoch, transport=sender.description)
        return sender.description

    async def run_plan(self, plan: DraftPlan, arrived_ns: int) -> DraftResult | None:
        """Run one step and send its drafts; a plan of another epoch is void."""
        sender = self._sender
        if sender is None or plan.epoch != self._epoch:
            log.info("plan.stale", step_id=plan.step_id, epoch=plan.epoch, current=self._epoch)
            return None
        return await self._executor.run(
            self._engine.step, plan, plan_ns=arrived_ns, send=sender.send
        )

    def close(self) -> None:
        """Give the link up."""
        self._drop_link()

    def _drop_link(self) -> None:
        sender, self._sender, self._epoch = self._sender, None, 0
        if sender is not None:
            sender.close()

    def _on_lost(self, lost: LinkLost) -> None:
        if lost.epoch == self._epoch:
            log.warning("link.lost", epoch=lost.epoch, reason=lost.reason)
            self._drop_link()
            self.push(lost)
