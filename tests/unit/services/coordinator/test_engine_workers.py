"""The engine while workers come, fail, go and are swapped."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from minedraft.errors import (
    InvalidRequestError,
    ProtocolError,
)
from minedraft.services.coordinator.core.request import Phase
from minedraft.types import Mode, RequestId
from tests.engine_world import EngineWorld, make_sample, read
from tests.worker_doubles import continuation

# -- losses ---------------------------------------------------------------------------------


async def test_the_verifier_is_lost_and_the_output_stays_the_same():
    world = EngineWorld.drafting(Mode(2, 4, 4))
    samples = [make_sample(f"r{i}", (i + 1,), 20) for i in range(3)]
    world.submit(*samples)
    world.step(4)
    world.engine.verifier_lost()
    world.draft_plans.clear()
    assert world.core.num_waiting == 3
    world.verifier_up()
    world.drafter_up(2)
    world.run_dry()
    for i, sample in enumerate(samples):
        assert (await read(sample.stream))[0][0] == continuation((i + 1,), 20)


async def test_a_smaller_verifier_ends_what_it_can_never_hold_with_an_error():
    world = EngineWorld()
    big, small = make_sample("big", max_tokens=40), make_sample("small", max_tokens=4)
    world.submit(big)
    world.submit(small)
    world.verifier_up(num_blocks=4)  # 16 positions
    world.run_dry()
    with pytest.raises(InvalidRequestError, match="the pool has 4"):
        await read(big.stream)
    assert (await read(small.stream))[0][0] == continuation((1, 2, 3), 4)


async def test_a_lost_drafter_means_no_drafts_from_the_next_step_on():
    world = EngineWorld.drafting()
    world.submit(make_sample("r", max_tokens=40))
    world.verify()
    assert world.verify_plans[-1].rows[0].num_draft_tokens == 4
    world.drafter_down(1)
    world.draft_plans.clear()
    world.verify()
    assert world.verify_plans[-1].rows[0].num_draft_tokens == 0
    assert not world.draft_plans


async def test_a_request_that_the_verifier_keeps_failing_at_is_given_up_and_the_others_go_on():
    world = EngineWorld(Mode(1, 1, 0))
    bad, good = make_sample("bad", max_tokens=9), make_sample("good", max_tokens=9)
    world.submit(bad, good)
    for _ in range(3):
        world.verifier_up()
        world.engine.verifier_lost(by_failure=True)
    with pytest.raises(ProtocolError, match="failed 3 times at a step with this request"):
        await read(bad.stream)
    world.verifier_up()
    world.run_dry()
    assert (await read(good.stream))[0][0] == continuation((1, 2, 3), 9)


def fail(world: EngineWorld, *, with_nonsense: bool = False) -> None:
    """The verifier fails at the step it is running, and comes back."""
    if with_nonsense:
        result = world.verifier.run()
        row = replace(result.rows[0], base_len=99)
        with pytest.raises(ProtocolError, match="base_len 99"):
            world.engine.on_verify_result(replace(result, rows=(row, *result.rows[1:])))
    world.engine.verifier_lost(by_failure=True)
    world.verifier_up()


@pytest.mark.parametrize("with_nonsense", [False, True])
async def test_only_the_step_that_the_verifier_was_running_is_to_blame(with_nonsense):
    world = EngineWorld(Mode(2, 4, 0))
    world.verifier_up()
    bad, good = make_sample("bad", max_tokens=9), make_sample("good", max_tokens=9)
    world.submit(bad, good)
    for _ in range(3):  # the batches are filled anew each time: bad is in the first step
        fail(world, with_nonsense=with_nonsense)
    assert (bad.request.is_finished, good.request.is_finished) == (True, False)
    with pytest.raises(ProtocolError, match="failed 3 times at a step with this request"):
        await read(bad.stream)
    world.run_dry()
    assert (await read(good.stream))[0][0] == continuation((1, 2, 3), 9)


async def test_one_in_the_same_step_as_what_the_verifier_fails_at_survives_it():
    world = EngineWorld(Mode(1, 4, 0))
    world.verifier_up()
    good = [make_sample(f"good{i}", max_tokens=9) for i in range(2)]
    bad = make_sample("bad", max_tokens=9)
    world.submit(good[0], bad, good[1])
    num_failures = 0
    for _ in range(60):  # it fails at each step of decoding with bad in it
        plan = world.verify_plans[-1]
        is_in_step = any(row.row_id == bad.request.row_id for row in plan.rows)
        if is_in_step and bad.request.phase is Phase.VERIFYING:
            num_failures += 1
            fail(world)
        else:
            world.verify()
    assert num_failures == 3
    with pytest.raises(ProtocolError, match="failed 3 times"):
        await read(bad.stream)
    for sample in good:
        assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 9)


async def test_failures_between_which_a_request_decodes_do_not_end_it():
    world = EngineWorld(Mode(1, 4, 0))
    world.verifier_up()
    sample = make_sample("long", max_tokens=12)
    world.submit(sample)
    for _ in range(4):
        world.verify()
        world.verify()
        fail(world)
    world.run_dry()
    assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 12)


async def test_a_verifier_that_only_goes_away_is_nobodys_fault():
    world = EngineWorld()
    sample = make_sample("r")
    world.submit(sample)
    for _ in range(9):
        world.verifier_up()
        world.engine.verifier_lost()
    world.verifier_up()
    world.run_dry()
    assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 6)


async def test_the_verifier_owes_the_oldest_step_until_it_answers():
    world = EngineWorld()
    world.submit(make_sample("r", max_tokens=2))
    assert world.core.owed_by_verifier == 0, "there is no verifier to wait for"
    world.verifier_up()
    first = world.core.owed_by_verifier
    assert first > 0
    world.verify()
    assert world.core.owed_by_verifier > first
    world.verify()
    assert world.core.owed_by_verifier == 0, "nothing is out"


async def test_a_step_is_owed_even_if_all_its_requests_have_ended():
    world = EngineWorld(Mode(2, 4, 0))
    world.verifier_up()
    world.submit(make_sample("r0"), make_sample("r1"))
    owed = world.core.owed_by_verifier
    for request_id in ("r0", "r1"):
        world.engine.abort(RequestId(request_id))
    world.submit(make_sample("late"))
    assert world.core.num_waiting == 1
    assert world.core.owed_by_verifier == owed > 0


# -- warm-up and cut-over -------------------------------------------------------------------


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def waiting_until(world: EngineWorld, holds) -> asyncio.Future[None]:
    """Somebody who waits for what does not hold yet."""
    waiting = asyncio.ensure_future(world.engine.until(holds))
    await settled()
    assert not waiting.done()
    return waiting


async def test_a_warm_drafter_takes_over_and_the_output_stays_the_same():
    world = EngineWorld.drafting(Mode(2, 4, 4))
    samples = [make_sample(f"r{i}", (i + 1,), 30) for i in range(3)]
    world.submit(*samples)
    world.step(3)
    num_spans = len(world.engine.timeline.spans(since_unix_ns=-1))
    world.warm_up(2)
    waiting = await waiting_until(
        world, lambda: not world.core.sources.warming or world.sources[2].is_warm
    )
    assert {plan.epoch for plan in world.draft_plans} == {1, 2}
    world.draft()
    await waiting
    lanes = [span.lane for span in world.engine.timeline.spans(since_unix_ns=-1)]
    assert lanes.count("draft") == len(lanes[num_spans:]) + lanes[:num_spans].count("draft")
    world.cut_over(1, 2)
    assert world.uses(1), "steps in flight are still the old one's"
    drained = await waiting_until(world, lambda: not world.uses(1))
    world.step()
    world.verify()
    await drained
    world.drafter_down(1)
    world.run_dry()
    for i, sample in enumerate(samples):
        tokens, ends = await read(sample.stream)
        assert tokens[0] == continuation((i + 1,), 30)
        assert ends[0].speculation.num_accepted_tokens > 0


async def test_a_warm_up_leaves_nothing_behind_in_the_timeline():
    world = EngineWorld.drafting()
    world.submit(make_sample("r", max_tokens=40))
    world.step()
    world.warm_up(2)
    while world.core.num_running:
        world.step()
    world.draft()
    assert not world.engine.timeline._prefill_rows


async def test_a_lost_drafter_leaves_nothing_behind_in_the_timeline():
    world = EngineWorld()
    world.verifier_up()
    world.submit(make_sample("r", max_tokens=40))
    world.verify()
    world.drafter_up(1)
    world.verify()
    world.drafter_down(1)
    world.draft_plans.clear()
    world.run_dry()
    assert not world.engine.timeline._prefill_rows


async def test_who_waits_is_woken_when_a_warming_drafter_is_lost():
    world = EngineWorld()
    world.verifier_up()
    world.submit(make_sample("r", max_tokens=40))
    world.verify()
    world.warm_up(2)
    waiting = await waiting_until(
        world, lambda: not world.core.sources.warming or world.sources[2].is_warm
    )
    world.drafter_down(2)
    await waiting
    assert world.core.sources.warming == ()


async def test_who_waits_for_the_old_drafter_to_drain_is_woken_when_the_verifier_is_lost():
    world = EngineWorld.drafting()
    world.submit(make_sample("r", max_tokens=40))
    world.verify()
    assert world.uses(1)
    waiting = await waiting_until(world, lambda: not world.uses(1))
    world.engine.verifier_lost()
    await settled()
    assert waiting.done()


async def test_until_holds_already():
    await EngineWorld().engine.until(lambda: True)


async def test_a_wait_that_was_given_up_disturbs_nobody():
    world = EngineWorld()
    waiting = await waiting_until(world, lambda: False)
    waiting.cancel()
    await settled()
    world.drafter_up(1)
    world.drafter_down(1)
    assert waiting.cancelled()
