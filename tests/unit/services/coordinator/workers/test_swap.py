from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from minedraft.admin import SwapOrder
from minedraft.errors import (
    IncompatibleWorkerError,
    PreconditionError,
    RequestNotFoundError,
    SwapInProgressError,
)
from minedraft.plans import LinkLost
from tests.membership_world import settled
from tests.swap_world import GREEN, IN_PLACE, begin, finish, old_one_stays, swap_world, warmed


@pytest.fixture
async def world(monkeypatch):
    async with swap_world(monkeypatch) as world:
        yield world


# -- what goes well -------------------------------------------------------------------------


async def test_in_place_the_old_model_drafts_until_the_new_one_has_caught_up(world):
    swap = begin(world)
    await world.until(lambda: 2 in world.warming)
    assert world.core.sources.newest == 1
    await warmed(world)
    assert not swap.done(), "a step in flight still gets its drafts from the old one"
    assert world.uses(1)
    world.verify()
    result = await swap
    assert (result.epoch, result.model.name) == (2, "new")
    assert 0 < result.warm_up_ns <= result.duration_ns
    assert world.old.dropped == [1]
    member = world.membership.drafters[0]
    assert [source.source_id for source in member.sources if source.is_in_place] == [2]
    assert member.status().model.name == "new"
    assert (world.swapper.status.num_done, world.swapper.status.num_failed) == (1, 0)
    await finish(world)


async def test_another_process_takes_over_and_the_old_one_leaves(world):
    green = world.drafter(GREEN)
    swap = begin(world, SwapOrder(address=GREEN))
    await warmed(world)
    world.verify()
    assert (await swap).epoch == 2
    assert [member.address for member in world.membership.drafters] == [GREEN]
    assert world.old.dropped == [1], "its process may live on"
    assert world.old.is_closed
    assert green.is_open
    assert world.membership.links._lent == set()
    await finish(world)


async def test_after_a_swap_a_lost_link_is_formed_anew(world):
    swap = begin(world)
    await warmed(world)
    world.verify()
    await swap
    world.target.say(LinkLost(2, "cable"))
    await world.until(lambda: world.core.sources.newest == 3)
    await finish(world)


async def test_a_second_swap_works_like_the_first(world):
    for epoch in (2, 3):
        swap = begin(world)
        await warmed(world, epoch)
        world.verify()
        assert (await swap).epoch == epoch
    assert world.old.dropped == [1, 2]
    await finish(world)


async def test_the_first_drafter_joins_by_a_swap_that_replaces_nobody(world):
    world.old.end()
    await world.membership.leave(world.membership.drafters[0])
    world.drafter(GREEN)
    swap = begin(world, SwapOrder(address=GREEN))
    await warmed(world)
    assert (await swap).epoch == 2
    (member,) = world.membership.drafters
    assert (member.address, member.source.source_id) == (GREEN, 2)
    world.target.say(LinkLost(2, "cable"))
    await world.until(lambda: world.core.sources.newest == 3)
    await finish(world)


async def test_a_drafter_that_its_name_let_go_meanwhile_is_let_go_once(world):
    """It dies during the swap and its address leaves the DNS name."""
    (old,) = world.membership.drafters
    world.drafter(GREEN)
    swap = begin(world, SwapOrder(address=GREEN))
    await world.until(lambda: 2 in world.warming)
    world.old.end()
    await world.until(lambda: old.connection is None)
    await world.membership.leave(old)
    await warmed(world)
    world.verify()
    assert (await swap).epoch == 2
    assert [member.address for member in world.membership.drafters] == [GREEN]
    await finish(world)


async def test_a_swap_waits_for_the_link_that_is_in_the_making(world):
    """Two at once would leave one of them that nobody knows of."""
    gate = world.old.form_gate = asyncio.Event()
    world.target.say(LinkLost(1, "cable"))
    await world.until(lambda: world.old.formed == [1, 2])
    world.old.form_gate = None
    swap = begin(world)
    await settled()
    assert world.old.loaded == ["new"]
    assert world.old.formed == [1, 2]
    gate.set()
    await warmed(world, 3)
    assert world.sources == (3,)
    world.verify()
    assert (await swap).epoch == 3
    assert world.membership.drafters[0].source.source_id == 3
    assert world.old.dropped == [2]
    await finish(world)


# -- what is refused ------------------------------------------------------------------------


async def test_a_second_swap_at_the_same_time_is_refused(world):
    swap = begin(world)
    await world.until(lambda: 2 in world.warming)
    with pytest.raises(SwapInProgressError, match="under way"):
        await world.swapper.swap(IN_PLACE)
    await warmed(world)
    world.verify()
    await swap


async def test_without_a_verifier_there_is_nothing_to_compare_with(world):
    world.target.end()
    await world.until(lambda: world.core.verifier_info is None)
    with pytest.raises(PreconditionError, match="no verifier"):
        await world.swapper.swap(IN_PLACE)


async def test_an_unknown_drafter_cannot_be_replaced(world):
    with pytest.raises(RequestNotFoundError, match="'nobody:1'"):
        await world.swapper.swap(SwapOrder(model="new", replace="nobody:1"))


async def test_a_member_cannot_join_again(world):
    with pytest.raises(PreconditionError, match="drafter:1 is a member already"):
        await world.swapper.swap(SwapOrder(address="drafter:1"))


async def test_a_member_cannot_join_again_under_another_name(world):
    """Its session would be taken from the member, and back, for ever."""
    alias = world.alias(world.old, "localhost:1")
    with pytest.raises(PreconditionError, match="localhost:1 is a member already, as drafter:1"):
        await world.swapper.swap(SwapOrder(address="localhost:1"))
    assert not alias.is_open
    await old_one_stays(world)


async def test_a_drafter_of_another_protocol_is_refused_at_once(world):
    green = world.drafter(GREEN)
    identity = replace(green.info.identity, protocol_version=99)
    green.info = replace(green.info, identity=identity)
    with pytest.raises(IncompatibleWorkerError, match="protocol version 99"):
        await world.swapper.swap(SwapOrder(address=GREEN))
    assert not green.is_open
    await old_one_stays(world)


async def test_a_model_that_lacks_ids_is_given_up(world):
    world.membership.num_token_ids = 51
    with pytest.raises(IncompatibleWorkerError, match=r"drafter new: vocab_size=50, .* 51 ids"):
        await world.swapper.swap(IN_PLACE)
    assert world.old.formed == [1]
    assert world.old.dropped == [0]
    await old_one_stays(world)


async def test_without_a_drafter_there_is_nobody_to_load_a_model(world):
    world.old.end()
    await world.until(lambda: world.core.sources.newest == 0)
    with pytest.raises(PreconditionError, match=r"drafter:1 is not connected to load 'new': start"):
        await world.swapper.swap(IN_PLACE)
    await world.membership.leave(world.membership.drafters[0])
    with pytest.raises(PreconditionError, match=r"no drafter is connected .* or give the address"):
        await world.swapper.swap(IN_PLACE)


# -- what fails after the cut-over ----------------------------------------------------------


@pytest.mark.parametrize("order", [IN_PLACE, SwapOrder(address=GREEN)], ids=["model", "address"])
async def test_whoever_leaves_after_the_cut_over_leaves_a_new_one_that_is_kept_linked(world, order):
    world.drafter(GREEN)
    swap = begin(world, order)
    await warmed(world)
    swap.cancel()
    with pytest.raises(asyncio.CancelledError):
        await swap
    await settled()
    (member,) = world.membership.drafters
    assert [source.source_id for source in member.sources if source.is_in_place] == [2]
    world.verify()
    world.target.say(LinkLost(2, "cable"))
    await world.until(lambda: world.core.sources.newest == 3)
    await finish(world)


async def test_a_new_link_lost_while_the_old_one_drains_is_formed_anew(world):
    swap = begin(world)
    await warmed(world)
    world.target.say(LinkLost(2, "cable"))
    await settled()
    world.verify()
    await swap
    await world.until(lambda: world.core.sources.newest == 3)
    assert world.membership.drafters[0].status().model.name == "new"
    await finish(world)


async def test_the_old_link_lost_while_it_drains_leaves_the_new_one_alone(world):
    swap = begin(world)
    await warmed(world)
    assert world.uses(1)
    world.target.say(LinkLost(1, "cable"))
    await settled()
    assert world.sources == (2,)
    world.verify()
    assert (await swap).epoch == 2
    assert world.old.formed == [1, 2]
    assert world.old.dropped == [1], "its end of the old link may stand"
    await finish(world)


async def test_the_old_link_lost_in_the_warm_up_leaves_the_new_one_alone(world):
    swap = begin(world)
    await world.until(lambda: 2 in world.warming)
    world.target.say(LinkLost(1, "cable"))
    await settled()
    assert world.sources == world.warming == (2,)
    await warmed(world)
    assert (await swap).epoch == 2
    assert world.old.formed == [1, 2]
    assert world.old.dropped == [1]
    await finish(world)


async def test_a_step_that_the_swap_cannot_wait_for_goes_on_without_drafts(world):
    swap = asyncio.create_task(world.swapper.swap(IN_PLACE, 0.6))
    await warmed(world)
    assert world.uses(1), "and nobody verifies it"
    assert (await swap).epoch == 2
    assert world.sources == (2,)
    await finish(world)


async def test_nobody_links_the_old_process_again_on_its_way_out(world):
    world.drafter(GREEN)
    gate = world.old.drop_gate = asyncio.Event()
    swap = begin(world, SwapOrder(address=GREEN))
    await warmed(world)
    world.verify()
    await world.until(lambda: world.old.dropped == [1])
    world.membership.links.look()
    await settled()
    assert world.old.formed == [1]
    gate.set()
    await swap
    assert world.membership.links._lent == set()
    await finish(world)


async def test_the_verifier_is_lost_while_the_old_one_drains(world):
    swap = begin(world)
    await warmed(world)
    world.target.end()
    await swap
    world.verifier()
    await world.until(lambda: world.core.sources.newest == 3)
    await finish(world)


async def test_nobody_links_a_drafter_whose_old_link_is_being_dropped(world):
    """Whatever wakes the membership meanwhile."""
    gate = world.old.drop_gate = asyncio.Event()
    swap = begin(world)
    await warmed(world)
    world.verify()
    await world.until(lambda: world.old.dropped == [1])
    world.membership.links.look()
    await settled()
    assert world.old.formed == [1, 2]
    gate.set()
    await swap
    assert world.core.sources.newest == 2
    await finish(world)
