"""Handles plans, link orders and models of the drafter. Waits, never computes.

Each link has an epoch, a model and rows of its own. A link formed after `load_model` drafts with
the new model while older links go on with theirs, until they are dropped: that is the hot swap in
place. Re-forming a link with the same model starts over: no row survives an epoch.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import IncompatibleWorkerError, WorkerUnavailableError
from minedraft.link.form import available_transports, form_sender
from minedraft.plans import LinkLost, WorkerInfo, WorkerUsage
from minedraft.repeats import Repeats
from minedraft.services.drafter.draft_engine import DraftEngine
from minedraft.transport.ranges import check_vocabulary
from minedraft.worker.background import run_in_background
from minedraft.worker.heap import give_back
from minedraft.worker.memory import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from minedraft.link.endpoints import DraftSender
    from minedraft.link.options import LinkOptions
    from minedraft.model.executor import DeviceExecutor
    from minedraft.model.runner import ModelRunner
    from minedraft.packets.spec import LinkSpec
    from minedraft.plans import DraftPlan, DraftResult, WorkerIdentity
    from minedraft.types import ModelInfo

    class Loader(Protocol):
        """Reads models. Both methods block: not on the event loop."""

        def fingerprint(self, model: str) -> str:
            """The fingerprint of a model's tokenizer; PermissionDeniedError off the roots."""

        def load(self, model: str) -> ModelRunner:
            """The model, ready to run."""


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Link:
    """One link and what drafts for it."""

    sender: DraftSender
    engine: DraftEngine
    runner: ModelRunner


class Handler:
    """See `transport.worker_service.DrafterHandler`."""

    def __init__(
        self,
        *,
        runner: ModelRunner,
        kind: str,
        max_catch_up_tokens: int,
        prefix_cache: bool = True,
        run_ahead: int | None = 0,
        loader: Loader,
        executor: DeviceExecutor,
        identity: WorkerIdentity,
        link_options: LinkOptions,
    ) -> None:
        self._runner = runner
        """Of links formed from now on."""
        self._kind = kind
        self._max_catch_up_tokens = max_catch_up_tokens
        self._prefix_cache = prefix_cache
        self._run_ahead = run_ahead
        self._loader = loader
        self._executor = executor
        self._identity = identity
        self._link_options = link_options
        self._transports = available_transports(link_options)
        self._links: dict[int, _Link] = {}
        self._lost: set[int] = set()
        """Epochs lost before they were entered; emptied when one of them is."""
        self._repeats = Repeats()
        self._session = 0
        """Sessions begun. Every coordinator numbers its links from 1: an epoch is its session's."""
        self.push: Callable[[LinkLost], None] = lambda _lost: None
        """Sends a note to the coordinator; set by the composition root."""

    def info(self) -> WorkerInfo:
        """Who and what this is."""
        return WorkerInfo(
            identity=self._identity,
            model=self._model_info(self._runner),
            transports=self._transports,
        )

    async def begin_session(self) -> None:
        """Forget all rows and the old coordinator's links, once the device is free.

        While it hangs there is no session, and nobody waits for drafts.
        """
        self._session += 1
        self._lost.clear()
        self.close()
        await self._executor.run(_nothing)

    async def load_model(self, model: str, tokenizer_fingerprint: str) -> ModelInfo:
        """Load another model for the links formed from now on.

        Raises:
            IncompatibleWorkerError: its vocabulary is another one; nothing was loaded.
            PermissionDeniedError: it is not under one of the model roots.
            ModelError: it cannot be loaded.
            WorkerUnavailableError: another session began meanwhile, which knows nothing of it.
        """
        session = self._session
        found = await asyncio.to_thread(self._loader.fingerprint, model)
        if found != tokenizer_fingerprint:
            raise IncompatibleWorkerError(
                f"drafter model {model!r} has tokenizer fingerprint {found[:12] or 'none'}, "
                f"the target's is {tokenizer_fingerprint[:12]}"
            )
        # Beside the device thread: the model in use goes on drafting meanwhile.
        runner = await run_in_background(self._loader.load, model)
        if session != self._session:
            raise WorkerUnavailableError(f"model {model!r}: another session began meanwhile")
        self._runner = runner
        log.info("model.loaded", model=self._runner.info.name)
        return self._model_info(self._runner)

    async def form_link(self, spec: LinkSpec) -> str:
        """Form the sending end of a new link, with the newest model and no rows."""
        loop = asyncio.get_running_loop()
        runner = self._runner
        session = self._session

        def on_lost(epoch: int, reason: str) -> None:
            loop.call_soon_threadsafe(self._on_lost, LinkLost(epoch, reason), session)

        self._lost.clear()
        # The new link's rows take the whole KV pool of its model: nobody else may write to it.
        for epoch in [epoch for epoch, link in self._links.items() if link.runner is runner]:
            self._drop(epoch)
        sender = await form_sender(spec, on_lost=on_lost, options=self._link_options)
        engine = DraftEngine(
            runner,
            self._kind,
            max_catch_up_tokens=self._max_catch_up_tokens,
            q_width=spec.q_width,
            prefix_cache=self._prefix_cache,
            run_ahead=self._run_ahead,
        )
        if session != self._session:
            sender.close()
            raise WorkerUnavailableError(f"link {spec.epoch}: another session began meanwhile")
        if spec.epoch in self._lost:
            self._lost.clear()
            sender.close()
            raise WorkerUnavailableError(f"link {spec.epoch} was lost while it was formed")
        self._links[spec.epoch] = _Link(sender, engine, runner)
        log.info("link.formed", epoch=spec.epoch, transport=sender.description)
        return sender.description

    async def drop_link(self, epoch: int) -> None:
        """Drop a link, and its model if nothing else uses it.

        If that model was the newest one, an older one still drafts: the swap to it has failed, and
        links to come have the older model again. Epoch 0 says the same of a model never linked.
        """
        is_newest = epoch == 0 or (
            epoch in self._links and self._links[epoch].runner is self._runner
        )
        self._drop(epoch)
        if self._links and is_newest:
            self._runner = self._links[max(self._links)].runner
        await self._executor.run(_nothing)  # a step in flight still holds the link's model
        await run_in_background(give_back)

    async def start_plan(
        self, plan: DraftPlan, arrived_ns: int
    ) -> asyncio.Future[DraftResult | LinkLost | WorkerUsage | None]:
        """Queue one step for the device, which sends its drafts; a plan of a dead epoch is void.

        Raises:
            ProtocolError: a token of a row is none of the model's.
        """
        link = self._links.get(plan.epoch)
        if link is None:
            repeated = self._repeats.facts(f"stale {plan.epoch}")
            if repeated is not None:
                log.info("plan.stale", step_id=plan.step_id, epoch=plan.epoch, **repeated)
            void: asyncio.Future[DraftResult | LinkLost | WorkerUsage | None]
            void = asyncio.get_running_loop().create_future()
            void.set_result(None)
            return void
        check_vocabulary(plan, link.runner.info.vocab_size)
        future: asyncio.Future[Any] = self._executor.submit(
            link.engine.step, plan, plan_ns=arrived_ns, send=link.sender.send
        )
        future.add_done_callback(self._go_on)
        return future

    async def usage(self) -> WorkerUsage:
        """What this process holds at the moment."""
        runners = {id(r): r for r in (self._runner, *(k.runner for k in self._links.values()))}
        rows = [link.engine.rows for link in self._links.values()]
        ahead = [link.engine.ahead for link in self._links.values()]
        return WorkerUsage(
            num_blocks=sum(runner.num_blocks for runner in runners.values()),
            num_blocks_used=sum(each.num_blocks_used for each in rows),
            num_blocks_cached=sum(each.num_blocks_cached for each in rows),
            num_prefix_hit_tokens=sum(each.num_hit_tokens for each in rows),
            num_ahead_tokens=sum(each.num_drawn for each in ahead),
            num_ahead_used_tokens=sum(each.num_used for each in ahead),
            longest_ahead_wait_ns=max((each.longest_wait_ns for each in ahead), default=0),
            rss_bytes=await asyncio.to_thread(resident_bytes),
        )

    def close(self) -> None:
        """Drop all links."""
        for epoch in list(self._links):
            self._drop(epoch)

    def _go_on(self, _ended: asyncio.Future[Any]) -> None:
        """Device work has ended: draw ahead while nothing is queued.

        One forward pass at a time, so that a plan that comes meanwhile waits for no more than it.
        """
        if self._executor.num_unfinished:
            return  # this is called again when that ends
        for link in self._links.values():
            if link.engine.ahead.has_work:
                self._executor.submit(link.engine.run_ahead).add_done_callback(self._ran_ahead)
                return

    def _ran_ahead(self, ended: asyncio.Future[None]) -> None:
        if ended.cancelled():
            return
        failure = ended.exception()
        if failure is not None:
            # The next plan finds the same, and says so; it needs nothing of this.
            repeated = self._repeats.facts(f"ahead {failure!r}")
            if repeated is not None:
                log.warning("ahead.failed", reason=str(failure), **repeated)
        self._go_on(ended)

    def _model_info(self, runner: ModelRunner) -> ModelInfo:
        return replace(runner.info, drafter_kind=self._kind, num_blocks=0)

    def _drop(self, epoch: int) -> None:
        link = self._links.pop(epoch, None)
        if link is not None:
            link.sender.close()

    def _on_lost(self, lost: LinkLost, session: int) -> None:
        if session != self._session:
            return
        if lost.epoch not in self._links:
            self._lost.add(lost.epoch)  # it may be in the making
            return
        log.warning("link.lost", epoch=lost.epoch, reason=lost.reason)
        self._drop(lost.epoch)
        self.push(lost)


def _nothing() -> None:
    """Work that only waits for its turn."""
