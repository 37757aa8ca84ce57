from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from minedraft.errors import IncompatibleWorkerError, WorkerUnavailableError
from minedraft.link.formation import await_peer


@pytest.fixture
def running():
    future = Future()
    future.set_running_or_notify_cancel()
    return future


@pytest.fixture
def abandoned():
    return []


async def test_a_formed_link_is_not_abandoned(running, abandoned, make_spec):
    running.set_result("peer")

    got = await await_peer(running, make_spec(), abandon=lambda: abandoned.append(True))

    assert got == "peer"
    assert abandoned == []


async def test_a_failure_is_passed_on_and_abandons(running, abandoned, make_spec):
    running.set_exception(IncompatibleWorkerError("differs"))

    with pytest.raises(IncompatibleWorkerError, match="differs"):
        await await_peer(running, make_spec(), abandon=lambda: abandoned.append(True))
    assert abandoned == [True]


async def test_the_timeout_names_the_link_and_what_comes_later_is_ignored(
    running, abandoned, make_spec
):
    spec = make_spec(timeout_s=0.001)

    with pytest.raises(WorkerUnavailableError, match=f"{spec.name} .*timeout_s=0.001"):
        await await_peer(running, spec, abandon=lambda: abandoned.append(True))
    assert abandoned == [True]
    running.set_exception(RuntimeError("too late"))  # by the thread, which does not know


async def test_cancellation_abandons(running, abandoned, make_spec):
    task = asyncio.create_task(
        await_peer(running, make_spec(), abandon=lambda: abandoned.append(True))
    )
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert abandoned == [True]
