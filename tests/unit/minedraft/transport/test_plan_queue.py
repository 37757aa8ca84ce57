"""minedraft/transport/plan_queue.py: a session that ends leaves no wait behind."""

from __future__ import annotations

import asyncio
import gc

import pytest

from minedraft.transport.plan_queue import PlanQueue


def queue(group: asyncio.TaskGroup, drafts: asyncio.Future[str]) -> PlanQueue[int, str]:
    async def take() -> str:
        return await drafts

    return PlanQueue(group, capacity=4, lane=lambda plan: plan, inputs=lambda _plan: take())


async def test_a_plan_starts_with_what_it_waited_for():
    drafts: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        plans = queue(group, drafts)
        await plans.put(7)
        drafts.set_result("drafts")
        arrived = await plans.get()
    assert (arrived.plan, arrived.inputs) == (7, "drafts")
    assert arrived.ready_ns >= arrived.arrived_ns


async def test_a_wait_that_had_no_turn_before_the_end_is_no_warning():
    async with asyncio.TaskGroup() as group:
        plans = queue(group, asyncio.get_running_loop().create_future())
        await plans.put(7)
        plans.cancel()
    gc.collect()  # what was never awaited warns here, and a warning is an error


async def test_a_plan_that_comes_while_the_session_ends_is_no_warning():
    async def breaks() -> None:
        raise ValueError

    with pytest.raises(ExceptionGroup, match="unhandled") as ended:  # noqa: PT012 all of it is one
        async with asyncio.TaskGroup() as group:
            plans = queue(group, asyncio.get_running_loop().create_future())
            group.create_task(breaks())
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                with pytest.raises(RuntimeError, match="shutting down"):
                    await plans.put(7)
                raise
    assert isinstance(ended.value.exceptions[0], ValueError)
    gc.collect()


async def test_waits_of_a_task_that_fails_end_the_session():
    drafts: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with pytest.raises(ExceptionGroup) as ended:  # noqa: PT012 all of it is one
        async with asyncio.TaskGroup() as group:
            await queue(group, drafts).put(7)
            drafts.set_exception(KeyError("x"))
    assert isinstance(ended.value.exceptions[0], KeyError)
