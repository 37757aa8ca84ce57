"""A worker whose device hangs while its loop goes on, over real servers, channels and sessions."""

from __future__ import annotations

import pytest

from minedraft.admin import SwapOrder
from minedraft.plans import MAX_BATCHES
from minedraft.services.coordinator.workers.swap import Swapper
from minedraft.types import RequestId
from tests.engine_world import make_sample, read
from tests.hanging_workers import HangingWorld
from tests.worker_doubles import continuation

STEP_TIMEOUT_S = 0.3


@pytest.fixture
async def world():
    async with HangingWorld(STEP_TIMEOUT_S).running() as world:
        yield world


async def test_the_session_of_a_verifier_that_hangs_is_ended_at_both_ends(world):
    verifier, member = world.verifier, world.membership.verifier
    verifier.device.hang()
    sample = make_sample("r", max_tokens=9)
    world.engine.submit([sample])
    await verifier.device.is_stuck.wait()
    await world.until(lambda: member.connection is None)
    assert world.core.verifier_info is None
    assert world.core.num_waiting == 1, "the request waits"
    await world.until(lambda: "has not answered for 0." in member.last_error)
    verifier.device.go_on()  # no restart
    tokens, _ = await read(sample.stream)
    assert tokens[0] == continuation((1, 2, 3), 9)
    await world.until(lambda: world.core.sources.newest > 1)
    assert verifier.num_sessions == 2
    assert member.last_error == ""


async def test_a_verifier_that_never_runs_one_batchs_step_is_left_though_it_runs_the_others():
    """It is given the time of a step of each other batch, and of this one."""
    async with HangingWorld(step_timeout_s=60.0).running() as world:
        await world.finish("before")
        verifier, member = world.verifier, world.membership.verifier
        verifier.starved = {0}
        starved = make_sample("starved")
        world.engine.submit([starved])
        await world.until(lambda: 0 in world.core._table.in_flight)
        overdue = world.membership._overtaking._overdue
        for turn in range(MAX_BATCHES + 1):  # the first look only begins to count
            assert overdue(60.0) == [], turn
            await world.finish(f"{turn}")
        assert overdue(60.0) == [(member, (MAX_BATCHES + 1) * 60.0)]
        await world.membership._leave_stalled(member, 600.0)
        tokens, _ = await read(starved.stream)
        assert tokens[0] == continuation((1, 2, 3), 6)
        assert verifier.num_sessions == 2


async def test_links_drafts_and_swaps_work_after_a_verifier_had_hung(world):
    world.verifier.device.hang()
    world.engine.submit([make_sample("hung")])
    await world.verifier.device.is_stuck.wait()
    await world.until(lambda: world.membership.verifier.connection is None)
    world.engine.abort(RequestId("hung"))
    world.verifier.device.go_on()
    await world.until(lambda: world.core.sources.newest > 1)
    assert (await world.finish("after")).stats.total().num_drafts
    result = await Swapper(world.membership).swap(SwapOrder(model="new"))
    assert result.model.name == "new"
    assert (await world.finish("swapped")).stats.total().num_drafts


async def test_a_drafter_that_hangs_is_left_and_taken_back(world):
    drafter, member = world.drafter, world.membership.drafters[0]
    drafter.device.hang()
    world.verifier.drafters_hang = True
    assert (await world.finish("without drafts")).stats.total().num_accepted_tokens == 0
    await world.until(lambda: member.connection is None)
    await world.until(lambda: "has not answered for 0." in member.last_error)
    assert world.core.sources.newest == 0
    await world.finish("without a drafter")
    drafter.device.go_on()
    world.verifier.drafters_hang = False
    await world.until(lambda: world.core.sources.newest > 1)
    assert (await world.finish("after")).stats.total().num_drafts


async def test_workers_that_only_have_nothing_to_do_are_not_left(world):
    await world.finish("first")
    for _ in range(3):
        world.membership._watchdog._overdue(STEP_TIMEOUT_S)
    assert world.membership._watchdog._overdue(STEP_TIMEOUT_S) == []
    assert world.verifier.num_sessions == world.drafter.num_sessions == 1
