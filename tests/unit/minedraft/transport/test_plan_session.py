from __future__ import annotations

import asyncio

import pytest

from minedraft.errors import (
    ProtocolError,
)
from tests.plan_session_world import Session, Worker, session_of, settled


@pytest.fixture
async def worker():
    return Worker()


@pytest.fixture
async def session(worker):
    async with session_of(worker) as session:
        yield session


@pytest.fixture
async def session_that_tells():
    worker = Worker(begun=lambda plan: f"begin {plan}" if plan != "closes" else None)
    async with session_of(worker) as session:
        yield worker, session


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
