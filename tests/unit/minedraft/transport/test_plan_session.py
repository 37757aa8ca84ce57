from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from minedraft.errors import (
    DrainingError,
    InvalidRequestError,
    PreconditionError,
    ProtocolError,
    WorkerHeldError,
)
from minedraft.transport.fence import Coordinator
from minedraft.transport.plan_session import PlanSessions
from minedraft.transport.status import _leaf


class Context:
    """What a session needs of a gRPC context."""

    def __init__(self, coordinator: str) -> None:
        self.coordinator = coordinator
        self.written: list[str] = []
        self.has_begun = False
        self.reads = asyncio.Event()
        self.reads.set()

    def peer(self) -> str:
        return "ipv4:test"

    def invocation_metadata(self):
        return Coordinator(self.coordinator, "here").metadata if self.coordinator else ()

    async def send_initial_metadata(self, metadata) -> None:
        self.has_begun = True

    async def write(self, message) -> None:
        await self.reads.wait()
        self.written.append(message)


class Worker:
    """Plans are strings; a digit at their end is their lane. Those with a gate wait for it."""

    def __init__(self, **more) -> None:
        self.began = 0
        self.started: list[str] = []
        self.running: dict[str, asyncio.Future[str | None]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.sessions: PlanSessions[str, str, str] = PlanSessions(
            decode=self.decode,
            encode=lambda answer: f"<{answer}>",
            begin=self.begin,
            start=self.start,
            lane=lambda plan: plan[-1] if plan[-1].isdigit() else None,
            inputs=self.inputs,
            **more,
        )

    def decode(self, message: str) -> str:
        if message == "garbage":
            raise ProtocolError("garbage")
        return message

    async def begin(self) -> None:
        self.began += 1

    def inputs(self, plan: str):
        return self.wait(plan) if plan in self.gates else None

    async def wait(self, plan: str) -> str:
        await self.gates[plan].wait()
        return f"drafts of {plan}"

    async def start(self, arrived) -> asyncio.Future[str | None]:
        plan = arrived.plan
        assert arrived.ready_ns >= arrived.arrived_ns > 0
        assert arrived.inputs == (f"drafts of {plan}" if plan in self.gates else None)
        if plan == "unwelcome":
            raise ProtocolError("unwelcome")
        self.started.append(plan)
        self.running[plan] = asyncio.get_running_loop().create_future()
        return self.running[plan]


class Session:
    """One Session RPC."""

    def __init__(self, worker: Worker, coordinator: str = "a") -> None:
        self.context = Context(coordinator)
        self._requests: asyncio.Queue[str | None] = asyncio.Queue()
        self.task = asyncio.create_task(worker.sessions.serve(self._stream(), self.context))

    async def _stream(self):
        while (request := await self._requests.get()) is not None:
            yield request

    def send(self, *plans: str) -> None:
        for plan in plans:
            self._requests.put_nowait(plan)

    def leave(self) -> None:
        self._requests.put_nowait(None)

    async def error(self) -> BaseException:
        """What ended it, as the caller is told."""
        with pytest.raises(BaseExceptionGroup) as caught:
            await self.task
        return _leaf(caught.value)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def worker():
    return Worker()


@pytest.fixture
async def session(worker):
    session = Session(worker)
    await settled()
    yield session
    session.task.cancel()
    await asyncio.wait((session.task,))


@pytest.fixture
async def session_that_tells():
    worker = Worker(begun=lambda plan: f"begin {plan}" if plan != "closes" else None)
    session = Session(worker)
    await settled()
    yield worker, session
    session.task.cancel()
    await asyncio.wait((session.task,))


async def test_a_session_begins_with_a_clean_worker_and_says_so(worker, session):
    assert worker.began == 1
    assert session.context.has_begun
    assert worker.sessions.is_connected


async def test_plans_start_in_order_and_answers_come_in_order(worker, session):
    session.send("a", "b", "c")
    await settled()
    worker.running["b"].set_result("B")  # done first, told second
    await settled()
    assert session.context.written == []
    worker.running["a"].set_result("A")
    await settled()
    assert session.context.written == ["<A>", "<B>"]
    assert worker.started == ["a", "b", "c"]


async def test_the_next_plan_is_started_while_one_runs(worker, session):
    session.send("a", "b")
    await settled()
    assert worker.started == ["a", "b"]
    assert not worker.running["a"].done()


async def test_a_plan_that_waits_for_its_drafts_holds_up_those_of_its_batch_alone(worker, session):
    gate = worker.gates["a0"] = asyncio.Event()
    session.send("a0", "b0", "c1", "closes")
    await settled()
    assert worker.started == ["c1", "closes"]
    for plan in ("c1", "closes"):
        worker.running[plan].set_result(None)
    await settled()
    assert worker.started == ["c1", "closes"]
    gate.set()
    await settled()
    assert worker.started == ["c1", "closes", "a0", "b0"]


async def test_plans_that_wait_are_bounded_and_so_is_what_is_read_behind_them(worker, session):
    gate = worker.gates["a0"] = asyncio.Event()
    session.send("a0", *(f"{i}.0" for i in range(100)), "z1")
    await settled()
    assert worker.started == [], "z1 is not read while 64 plans wait"
    gate.set()
    while len(worker.started) < 102:
        await settled()
        for running in worker.running.values():
            if not running.done():
                running.set_result(None)
    assert (worker.started[0], worker.started[-1]) == ("a0", "z1")


async def test_each_step_is_said_to_begin_before_its_answer(session_that_tells):
    worker, session = session_that_tells
    session.send("a0", "b1")
    await settled()
    assert session.context.written == ["<begin a0>", "<begin b1>"]
    worker.running["a0"].set_result("A")
    await settled()
    assert session.context.written == ["<begin a0>", "<begin b1>", "<A>"]


@pytest.mark.parametrize("fails", ["unwelcome", "b1"])
async def test_what_failed_is_known_by_what_began_and_was_not_answered(session_that_tells, fails):
    """The error is the last that the coordinator hears, however soon it comes."""
    worker, session = session_that_tells
    session.send("a0", fails)
    await settled()
    if fails in worker.running:
        worker.running[fails].set_exception(ProtocolError("row 3 is not open"))
    await settled()
    assert not session.task.done(), "a0 runs before it"
    worker.running["a0"].set_result("A")
    error = await session.error()
    assert isinstance(error, ProtocolError)
    assert session.context.written == ["<begin a0>", f"<begin {fails}>", "<A>"]


async def test_nothing_is_answered_behind_a_plan_that_failed(session_that_tells):
    worker, session = session_that_tells
    session.send("a0", "b1")
    await settled()
    worker.running["b1"].set_result("B")
    worker.running["a0"].set_exception(ProtocolError("out of step"))
    await session.error()
    assert session.context.written == ["<begin a0>", "<begin b1>"]


async def test_behind_a_plan_that_failed_nothing_starts_while_its_error_waits_to_be_read(
    session_that_tells,
):
    worker, session = session_that_tells
    session.context.reads.clear()
    session.send("a0", *(f"{i}.{i}" for i in range(1, 9)))
    await settled()
    worker.running["a0"].set_exception(ProtocolError("out of step"))
    for _ in range(9):
        await settled()
        for running in worker.running.values():
            if not running.done():
                running.set_result(None)
    assert len(worker.started) <= 4
    session.context.reads.set()
    await session.error()
    assert session.context.written == [f"<begin {plan}>" for plan in worker.started[:3]]


async def test_a_coordinator_that_leaves_while_plans_wait_ends_the_session(worker, session):
    worker.gates["a0"] = asyncio.Event()
    session.send("a0", "b0")
    await settled()
    session.leave()
    await session.task
    assert worker.started == []


async def test_how_many_run_ahead_is_bounded(worker, session):
    session.send(*"abcdefgh")
    await settled()
    assert len(worker.started) <= 3


async def test_a_plan_without_an_answer_is_not_answered(worker, session):
    session.send("a", "b")
    await settled()
    worker.running["a"].set_result(None)
    worker.running["b"].set_result("B")
    await settled()
    assert session.context.written == ["<B>"]


async def test_a_note_that_no_plan_asked_for_is_sent(worker, session):
    worker.sessions.push("note")
    await settled()
    assert session.context.written == ["<note>"]


async def test_a_note_without_a_session_is_dropped(worker):
    worker.sessions.push("nobody hears")
    session = Session(worker)
    await settled()
    assert session.context.written == []
    session.leave()
    await session.task


async def test_a_coordinator_that_leaves_ends_the_session_quietly(worker, session):
    session.send("a")
    await settled()
    session.leave()
    await session.task
    assert not worker.sessions.is_connected


async def test_an_error_of_a_running_plan_ends_the_stream_with_it(worker, session):
    session.send("a")
    await settled()
    worker.running["a"].set_exception(ProtocolError("row 3 is not open"))
    error = await session.error()
    assert isinstance(error, ProtocolError)
    assert str(error) == "row 3 is not open"
    assert not worker.sessions.is_connected


@pytest.mark.parametrize("plan", ["unwelcome", "garbage"])
async def test_an_error_before_a_plan_runs_ends_the_stream_with_it(worker, session, plan):
    session.send(plan)
    error = await session.error()
    assert isinstance(error, ProtocolError)
    assert str(error) == plan


async def test_a_new_session_ends_the_old_one_and_starts_clean(worker, session):
    session.send("a")
    await settled()
    second = Session(worker)
    error = await session.error()
    assert isinstance(error, PreconditionError)
    assert "opened another session" in str(error)
    assert worker.began == 2
    assert worker.sessions.is_connected
    worker.sessions.push("note")
    second.send("b")
    await settled()
    worker.running["b"].set_result("B")
    await settled()
    assert second.context.written == ["<note>", "<B>"]
    assert session.context.written == []
    second.leave()
    await second.task


async def test_nothing_of_the_old_session_is_started_once_the_new_one_has_begun(worker, session):
    gate = worker.gates["late"] = asyncio.Event()
    session.send("late")
    await settled()
    second = Session(worker)
    await session.error()
    gate.set()
    await settled()
    assert worker.started == []
    second.leave()
    await second.task


async def test_an_old_plan_that_the_new_session_wakes_is_not_started_either(worker, session):
    """A verifier that begins closes its links, which wakes a plan that waits for drafts."""
    gate = worker.gates["late"] = asyncio.Event()
    session.send("late")
    await settled()

    async def begin() -> None:
        gate.set()
        worker.started.append("reset")

    worker.sessions._begin = begin
    second = Session(worker)
    await session.error()
    await settled()
    assert worker.started == ["reset"]
    second.leave()
    await second.task


async def test_of_many_sessions_of_one_coordinator_the_last_one_stays(worker, session):
    others = [Session(worker) for _ in range(3)]
    await settled()
    for ended in (session, *others[:2]):
        assert isinstance(await ended.error(), PreconditionError)
    assert worker.sessions.is_connected
    worker.sessions.push("note")
    await settled()
    assert others[2].context.written == ["<note>"]
    others[2].leave()
    await others[2].task
    assert not worker.sessions.is_connected


async def test_a_session_between_two_that_gives_up_lets_nobody_pass(worker, session):
    """Its coordinator waited too long for the first one's plan, which takes its time to end."""
    gate = asyncio.Event()
    ended = []

    async def start(arrived):
        try:
            await gate.wait()
        except asyncio.CancelledError:
            await gate.wait()
            ended.append(arrived.plan)
            raise

    worker.sessions._start = start
    session.send("stubborn")
    await settled()
    second = Session(worker)
    await settled()
    second.task.cancel()
    await settled()
    third = Session(worker)
    await settled()
    began_before = worker.began
    gate.set()
    await settled()
    assert ended == ["stubborn"]
    assert (began_before, worker.began) == (1, 2)
    assert worker.sessions.is_connected
    third.leave()
    await third.task
    with pytest.raises(asyncio.CancelledError):
        await second.task
    assert isinstance(await session.error(), PreconditionError)


async def test_another_coordinator_is_refused_until_the_session_ends(worker, session):
    session.send("a")
    await settled()
    for _ in range(2):
        with pytest.raises(WorkerHeldError, match=r"belongs to coordinator a \(here\)"):
            await Session(worker, "b").task
    assert worker.began == 1
    worker.running["a"].set_result("A")
    await settled()
    assert session.context.written == ["<A>"]
    session.leave()
    await session.task
    second = Session(worker, "b")
    await settled()
    assert second.context.has_begun
    with pytest.raises(WorkerHeldError, match="belongs to coordinator b"):
        await Session(worker, "a").task
    second.leave()
    await second.task


async def test_who_is_refused_is_logged_once_not_at_each_try(worker, session):
    with capture_logs() as logs:
        for other in ("b", "c", "b", "c"):
            with pytest.raises(WorkerHeldError):
                await Session(worker, other).task
    assert [line["to"] for line in logs] == ["coordinator b (here)", "coordinator c (here)"]


@pytest.mark.parametrize("who", ["", "two words", "x" * 65])
async def test_a_session_of_nobody_is_refused(worker, who):
    with pytest.raises(InvalidRequestError, match="minedraft-coordinator="):
        await Session(worker, who).task
    assert worker.began == 0


async def test_orders_are_the_holders_alone(worker, session):
    worker.sessions.check_caller(Context("a"))
    with pytest.raises(WorkerHeldError, match="belongs to coordinator a"):
        worker.sessions.check_caller(Context("b"))
    session.leave()
    await session.task
    with pytest.raises(PreconditionError, match="no session open"):
        worker.sessions.check_caller(Context("a"))


async def test_draining_ends_the_session_with_an_error_that_says_so(worker, session):
    await worker.sessions.drain()
    await worker.sessions.drain()
    assert isinstance(await session.error(), DrainingError)
    assert not worker.sessions.is_connected
    await worker.sessions.drain()  # nobody is there


async def test_a_worker_that_cannot_begin_ends_the_session(worker):
    async def broken() -> None:
        raise ProtocolError("no device")

    worker.sessions._begin = broken
    session = Session(worker)
    with pytest.raises(ProtocolError, match="no device"):
        await session.task
    assert not worker.sessions.is_connected
    assert not session.context.has_begun


async def test_a_coordinator_that_comes_again_and_again_is_logged_once_a_minute(worker):
    with capture_logs() as logs:
        for _ in range(9):
            session = Session(worker)
            await settled()
            session.leave()
            await session.task
    assert [entry["event"] for entry in logs] == ["session.started", "session.ended"]
