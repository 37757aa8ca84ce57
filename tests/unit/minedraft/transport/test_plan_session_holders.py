"""Whose session a worker serves: one coordinator's at a time, and of that one the last."""

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
from tests.plan_session_world import Context, Session, Worker, session_of, settled


@pytest.fixture
async def worker():
    return Worker()


@pytest.fixture
async def session(worker):
    async with session_of(worker) as session:
        yield session


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
