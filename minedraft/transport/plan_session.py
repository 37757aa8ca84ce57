"""The worker's end of a session with one coordinator: receives plans, sends answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import structlog

from minedraft.errors import DrainingError, MineDraftError, PreconditionError
from minedraft.repeats import Repeats
from minedraft.transport.fence import Fence, coordinator_of
from minedraft.transport.plan_queue import PlanQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable

    import grpc

    from minedraft.transport.plan_queue import Arrived

log = structlog.get_logger(__name__)

Plan = TypeVar("Plan")
Answer = TypeVar("Answer")
Inputs = TypeVar("Inputs")

_MAX_QUEUED_PLANS = 64
"""A coordinator has at most one plan per batch in flight and a few that only close rows."""

BEGUN = (("minedraft-session", "begun"),)
"""Metadata that confirm a session; a refused one ends without them."""


class PlanSessions(Generic[Plan, Inputs, Answer]):
    """Runs plans ready-first (see `ready_first`) and streams the answers back.

    The worker belongs to the coordinator whose session is open (`fence`). A new session of the same
    one ends the one before it: it must not wait until the old connection has timed out.

    Args:
        role: Of the worker, for messages.
        decode: Message -> plan.
        encode: Answer -> message.
        begin: Called when a session starts: forget all rows.
        start: Starts one plan; does not wait for its end. The future has the answer; None: no
            answer. The next plan is started while the last one runs, so that the device goes from
            one to the other without asking anybody.
        lane: Plans of one lane start in order of arrival; None: whenever they are ready.
        inputs: What a plan waits for before it can start; None: nothing. Bounds its own wait.
        begun: What is sent when a plan starts, before its answer or the error that ends the
            session; None: nothing.
    """

    def __init__(
        self,
        *,
        role: str = "worker",
        decode: Callable[[Any], Plan],
        encode: Callable[[Answer], Any],
        begin: Callable[[], Awaitable[None]],
        start: Callable[[Arrived[Plan, Inputs]], Awaitable[asyncio.Future[Answer | None]]],
        lane: Callable[[Plan], Hashable | None] = lambda _plan: None,
        inputs: Callable[[Plan], Coroutine[Any, Any, Inputs | None] | None] = lambda _plan: None,
        begun: Callable[[Plan], Answer | None] = lambda _plan: None,
    ) -> None:
        self._decode = decode
        self._encode = encode
        self._begin = begin
        self._start = start
        self._lane = lane
        self._inputs = inputs
        self._begun = begun
        self._fence = Fence(role)
        self._leaving: asyncio.Future[None] | None = None
        """Of the running session: resolved with why it must end."""
        self._repeats = Repeats()
        self._turn = asyncio.Lock()
        """Held while rows are in use: none of a session's plans may start once the rows are
        forgotten for another one, however many have come and gone between the two."""
        self._answers: asyncio.Queue[Answer | asyncio.Future[Answer | None]] | None = None
        """Answers, and plans that have ended: an error among them ends the session, once what came
        before it is sent."""

    @property
    def is_connected(self) -> bool:
        """Whether a coordinator is there."""
        return self._leaving is not None

    def check_caller(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Check that a call comes from the coordinator whose session is open.

        Raises:
            WorkerHeldError: another one's is.
            PreconditionError: none is.
            InvalidRequestError: the call does not say whose it is.
        """
        self._fence.check(coordinator_of(context.invocation_metadata()))

    async def drain(self) -> None:
        """End the session; the coordinator continues without this worker."""
        if self._leaving is not None and not self._leaving.done():
            self._leaving.set_exception(DrainingError("this worker is shutting down"))

    @property
    def has_unsent(self) -> bool:
        """Whether answers wait because the coordinator does not read."""
        return self._answers is not None and not self._answers.empty()

    def push(self, answer: Answer) -> None:
        """Send a note that belongs to no plan; drop it without a coordinator."""
        if self._answers is not None:
            self._answers.put_nowait(answer)

    async def serve(
        self, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Handle one Session RPC until the coordinator leaves or opens another one.

        Raises:
            WorkerHeldError: the session of another coordinator is open.
            InvalidRequestError: the call does not say whose it is.
            ExceptionGroup: what a plan, the codec or the stream raised.
        """
        coordinator = coordinator_of(context.invocation_metadata())
        self._fence.take(coordinator)
        if self._leaving is not None and not self._leaving.done():
            self._leaving.set_exception(
                PreconditionError("the same coordinator opened another session")
            )
        leaving = self._leaving = asyncio.get_running_loop().create_future()
        # Bounded by the plans in flight.
        answers: asyncio.Queue[Answer | asyncio.Future[Answer | None]] = asyncio.Queue()
        self._answers = answers
        self._say("session.started", peer=context.peer(), coordinator=str(coordinator))
        try:
            async with self._turn:
                await self._begin()
                # The coordinator waits for this: `begin` would drop a link formed before it.
                await context.send_initial_metadata(BEGUN)
                await self._run(requests, answers, leaving, context)
        finally:
            if self._leaving is leaving:
                self._leaving = self._answers = None
                self._fence.leave()
            leaving.cancel()
            self._say("session.ended", coordinator=str(coordinator))

    def _say(self, event: str, *, coordinator: str, **facts: str) -> None:
        repeated = self._repeats.facts(f"{event}\0{coordinator}")
        if repeated is not None:
            log.info(event, coordinator=coordinator, **facts, **repeated)

    async def _run(
        self,
        requests: AsyncIterator[Any],
        answers: asyncio.Queue[Answer | asyncio.Future[Answer | None]],
        leaving: asyncio.Future[None],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        async with asyncio.TaskGroup() as group:
            plans: PlanQueue[Plan, Inputs] = PlanQueue(
                group, capacity=_MAX_QUEUED_PLANS, lane=self._lane, inputs=self._inputs
            )
            running: asyncio.Queue[asyncio.Future[Answer | None]] = asyncio.Queue(1)
            workers = [
                group.create_task(self._start_plans(plans, running, answers), name="session.start"),
                group.create_task(self._collect(running, answers), name="session.collect"),
                group.create_task(self._write(answers, context), name="session.write"),
                group.create_task(_fail_with(leaving), name="session.leaving"),
            ]
            async for request in requests:
                await plans.put(self._decode(request))
            plans.cancel()
            for worker in workers:
                worker.cancel()

    async def _start_plans(
        self,
        plans: PlanQueue[Plan, Inputs],
        running: asyncio.Queue[asyncio.Future[Answer | None]],
        answers: asyncio.Queue[Answer | asyncio.Future[Answer | None]],
    ) -> None:
        while True:
            arrived = await plans.get()
            begun = self._begun(arrived.plan)
            if begun is not None:
                answers.put_nowait(begun)
            await running.put(await self._started(arrived))

    async def _started(self, arrived: Arrived[Plan, Inputs]) -> asyncio.Future[Answer | None]:
        try:
            return await self._start(arrived)
        except MineDraftError as err:
            # It ends the session in its turn, behind the plans that run: what they answer counts.
            failed: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
            failed.set_exception(err)
            failed.exception()  # nobody may be left to look at it
            return failed

    async def _collect(
        self,
        running: asyncio.Queue[asyncio.Future[Answer | None]],
        answers: asyncio.Queue[Answer | asyncio.Future[Answer | None]],
    ) -> None:
        has_failed = False
        while not has_failed:
            ended = await running.get()
            await asyncio.wait((ended,))
            answers.put_nowait(ended)
            has_failed = ended.cancelled() or ended.exception() is not None

    async def _write(
        self,
        answers: asyncio.Queue[Answer | asyncio.Future[Answer | None]],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        while True:
            sent = await answers.get()
            answer = sent.result() if isinstance(sent, asyncio.Future) else sent
            if answer is not None:
                await context.write(self._encode(answer))


async def _fail_with(leaving: asyncio.Future[None]) -> None:
    await leaving
