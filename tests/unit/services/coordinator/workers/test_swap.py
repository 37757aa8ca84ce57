from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from minedraft.admin import SwapOrder
from minedraft.errors import (
    IncompatibleWorkerError,
    ModelError,
    PreconditionError,
    RequestNotFoundError,
    SwapInProgressError,
    WorkerUnavailableError,
)
from minedraft.plans import LinkLost
from minedraft.services.coordinator.workers import swap as swap_module
from minedraft.services.coordinator.workers.swap import Swapper
from tests.engine_world import make_sample, read
from tests.membership_world import MembershipWorld, settled
from tests.worker_doubles import continuation

IN_PLACE = SwapOrder(model="new")
GREEN = "green:1"


@pytest.fixture
async def world(monkeypatch):
    monkeypatch.setattr(swap_module, "_POLL_S", 0.0)
    async with MembershipWorld(monkeypatch, drafters=("drafter:1",)) as world:
        world.target = world.verifier()
        world.old = world.drafter()
        await world.until(lambda: world.core.epoch == 1)
        world.swapper = Swapper(world.membership)
        world.sample = make_sample("r", max_tokens=60)
        world.engine.submit([world.sample])
        for _ in range(3):
            world.draft()
            world.verify()
        yield world


async def finish(world) -> None:
    world.work()
    tokens, ends = await read(world.sample.stream)
    assert tokens[0] == continuation((1, 2, 3), 60)
    assert ends[0].speculation.num_accepted_tokens > 0


def begin(world, order=IN_PLACE) -> asyncio.Task:
    return asyncio.create_task(world.swapper.swap(order))


async def warmed(world, epoch=2) -> None:
    """The new drafter is linked and has caught up; it takes over."""
    await world.until(lambda: epoch in world.core.warming_epochs)
    world.draft()
    await world.until(lambda: world.core.epoch == epoch)


# -- what goes well -------------------------------------------------------------------------


async def test_in_place_the_old_model_drafts_until_the_new_one_has_caught_up(world):
    swap = begin(world)
    await world.until(lambda: 2 in world.core.warming_epochs)
    assert world.core.epoch == 1
    await warmed(world)
    assert not swap.done(), "a step in flight still gets its drafts from the old one"
    assert world.core.uses(1)
    world.verify()
    result = await swap
    assert (result.epoch, result.model.name) == (2, "new")
    assert 0 < result.warm_up_ns <= result.duration_ns
    assert world.old.dropped == [1]
    member = world.membership.drafters[0]
    assert (member.link_epoch, member.warming_epoch) == (2, 0)
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
    assert not world.membership.drafters[0].is_joining
    await finish(world)


async def test_after_a_swap_a_lost_link_is_formed_anew(world):
    swap = begin(world)
    await warmed(world)
    world.verify()
    await swap
    world.target.say(LinkLost(2, "cable"))
    await world.until(lambda: world.core.epoch == 3)
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
    assert (member.address, member.link_epoch, member.is_joining) == (GREEN, 2, False)
    world.target.say(LinkLost(2, "cable"))
    await world.until(lambda: world.core.epoch == 3)
    await finish(world)


async def test_a_drafter_that_its_name_let_go_meanwhile_is_let_go_once(world):
    """It dies during the swap and its address leaves the DNS name."""
    (old,) = world.membership.drafters
    world.drafter(GREEN)
    swap = begin(world, SwapOrder(address=GREEN))
    await world.until(lambda: 2 in world.core.warming_epochs)
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
    assert world.core._drafters.epochs == (3,)
    world.verify()
    assert (await swap).epoch == 3
    assert world.membership.drafters[0].link_epoch == 3
    assert world.old.dropped == [2]
    await finish(world)


# -- what is refused ------------------------------------------------------------------------


async def test_a_second_swap_at_the_same_time_is_refused(world):
    swap = begin(world)
    await world.until(lambda: 2 in world.core.warming_epochs)
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
    await world.until(lambda: world.core.epoch == 0)
    with pytest.raises(PreconditionError, match=r"drafter:1 is not connected to load 'new': start"):
        await world.swapper.swap(IN_PLACE)
    await world.membership.leave(world.membership.drafters[0])
    with pytest.raises(PreconditionError, match=r"no drafter is connected .* or give the address"):
        await world.swapper.swap(IN_PLACE)


# -- what fails: the old one stays ----------------------------------------------------------


async def old_one_stays(world) -> None:
    await settled()
    assert world.core.epoch == 1
    assert world.core.warming_epochs == ()
    assert [member.address for member in world.membership.drafters] == ["drafter:1"]
    member = world.membership.drafters[0]
    assert (member.link_epoch, member.warming_epoch) == (1, 0)
    assert world.swapper.status.num_failed == 1
    await finish(world)


async def test_a_model_that_cannot_be_loaded_leaves_the_old_one_in_place(world):
    world.old.load_error = IncompatibleWorkerError("another vocabulary")
    with pytest.raises(IncompatibleWorkerError, match="another vocabulary"):
        await begin(world)
    assert world.swapper.status.last_error == "another vocabulary"
    await old_one_stays(world)


async def test_a_link_that_does_not_form_leaves_the_old_one_in_place(world):
    world.old.form_error = WorkerUnavailableError("no route")
    with pytest.raises(WorkerUnavailableError, match="no route"):
        await begin(world)
    world.old.form_error = None
    await old_one_stays(world)


async def test_another_process_that_does_not_fit_leaves_the_old_one_in_place(world):
    green = world.drafter(GREEN, fingerprint="other")
    with pytest.raises(IncompatibleWorkerError, match="another vocabulary"):
        await begin(world, SwapOrder(address=GREEN))
    assert green.formed == []
    await old_one_stays(world)


async def test_another_process_that_is_not_there_leaves_the_old_one_in_place(world, monkeypatch):
    monkeypatch.setattr(swap_module, "_JOIN_S", 0.0)
    with pytest.raises(WorkerUnavailableError, match="green:1 did not join"):
        await begin(world, SwapOrder(address=GREEN))
    await old_one_stays(world)


async def test_a_link_that_is_lost_in_every_warm_up_leaves_the_old_one_in_place(world, monkeypatch):
    green = world.drafter(GREEN)
    monkeypatch.setattr(swap_module, "_WARM_UP_S", 0.2)
    swap = begin(world, SwapOrder(address=GREEN))
    epoch = 2
    while not swap.done():  # each of its links is lost
        await world.until(lambda e=epoch: swap.done() or e in world.core.warming_epochs)
        if epoch in world.core.warming_epochs:
            world.target.say(LinkLost(epoch, "cable"))
            await world.until(lambda e=epoch: e not in world.core.warming_epochs)
        epoch += 1
    with pytest.raises(WorkerUnavailableError, match=r"within 0.2 s: its link was lost while"):
        await swap
    assert green.is_closed
    assert green.dropped == [green.formed[-1]], "its end of the link may stand"
    await old_one_stays(world)


@pytest.mark.parametrize("order", [IN_PLACE, SwapOrder(address=GREEN)], ids=["model", "address"])
async def test_a_link_lost_during_the_warm_up_is_formed_again_and_the_swap_goes_on(world, order):
    world.drafter(GREEN)
    swap = begin(world, order)
    for epoch in (2, 3, 4):
        await world.until(lambda e=epoch: e in world.core.warming_epochs)
        assert world.core.epoch == 1, "the old one drafts"
        world.target.say(LinkLost(epoch, "cable"))
    await warmed(world, 5)
    world.verify()
    assert (await swap).epoch == 5
    assert (world.swapper.status.num_done, world.swapper.status.num_failed) == (1, 0)
    await finish(world)


async def test_in_place_both_links_may_be_lost_and_the_new_model_takes_over(world):
    swap = begin(world)
    await world.until(lambda: 2 in world.core.warming_epochs)
    for epoch in (1, 2):
        world.target.say(LinkLost(epoch, "cable"))
    await world.until(lambda: 3 in world.core.warming_epochs)
    await warmed(world, 3)
    world.verify()
    assert ((await swap).epoch, world.membership.drafters[0].status().model.name) == (3, "new")
    await finish(world)


async def test_a_link_that_forms_at_the_second_attempt_will_do(world):
    world.old.form_error = WorkerUnavailableError("no route")
    swap = begin(world)
    await world.until(lambda: world.old.formed == [1, 2])
    world.old.form_error = None
    await warmed(world, 3)
    world.verify()
    assert (await swap).epoch == 3
    await finish(world)


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (SwapOrder(address=GREEN), "green:1 did not join within 0.1\\d+ s: green:1 is not there"),
        (IN_PLACE, "drafter:1 did not catch up within 0.1"),
    ],
    ids=["join", "warm up"],
)
async def test_who_waits_for_less_than_the_limits_is_told_why_before_it_gives_up(world, order, why):
    with pytest.raises(WorkerUnavailableError, match=why):
        await world.swapper.swap(order, 0.2)
    await old_one_stays(world)


async def test_a_model_that_loads_for_too_long_is_said(world):
    gate = world.old.load_gate = asyncio.Event()
    with pytest.raises(WorkerUnavailableError, match=r"still loading 'new' after 0\.1"):
        await world.swapper.swap(IN_PLACE, 0.2)
    gate.set()
    assert world.old.dropped == [0], "it may have loaded it just then"
    await old_one_stays(world)


async def test_whoever_leaves_while_a_model_loads_leaves_the_old_one_in_place(world):
    world.old.load_gate = asyncio.Event()
    swap = begin(world)
    await settled()
    swap.cancel()
    with pytest.raises(asyncio.CancelledError):
        await swap
    assert world.old.dropped == [0]
    await old_one_stays(world)


async def test_a_link_lost_before_it_was_answered_is_formed_again(world):
    """The verifier's end stands, and breaks, while the drafter's is being formed."""
    gate = world.old.form_gate = asyncio.Event()
    swap = begin(world)
    await world.until(lambda: world.old.formed == [1, 2])
    world.target.say(LinkLost(2, "cable"))
    await settled()
    gate.set()
    await warmed(world, 3)
    assert world.swapper._warm_up.trouble == "link 2 was lost as soon as it was formed"
    world.verify()
    assert (await swap).epoch == 3
    await finish(world)


async def test_after_a_failed_swap_the_drafter_is_linked_with_the_model_that_it_has_now(world):
    """It cannot go back without a link that has the old model: the verifier's end took them all."""
    swap = begin(world)
    await world.until(lambda: 2 in world.core.warming_epochs)
    world.old.models.clear()
    world.target.end()
    with pytest.raises(WorkerUnavailableError, match="one of its ends is not there"):
        await swap
    world.verifier()
    await world.until(lambda: world.core.epoch > 3)
    assert world.membership.drafters[0].status().model.name == "new"
    await finish(world)


async def test_another_process_that_dies_in_the_warm_up_leaves_the_old_one_in_place(world):
    green = world.drafter(GREEN)
    swap = begin(world, SwapOrder(address=GREEN))
    await world.until(lambda: 2 in world.core.warming_epochs)
    green.end()
    with pytest.raises(WorkerUnavailableError, match="green:1 left during the swap"):
        await swap
    await old_one_stays(world)


async def test_a_drafter_that_never_catches_up_leaves_the_old_one_in_place(world, monkeypatch):
    monkeypatch.setattr(swap_module, "_WARM_UP_S", 0.0)
    with pytest.raises(WorkerUnavailableError, match="did not catch up within 0 s"):
        await begin(world)
    await old_one_stays(world)


async def test_a_failed_swap_in_place_tells_the_drafter_to_go_back_to_its_old_model(
    world, monkeypatch
):
    world.old.form_error = WorkerUnavailableError("no route")
    with pytest.raises(WorkerUnavailableError, match="no route"):
        await begin(world)
    world.old.form_error = None
    assert world.old.formed == [1, 2, 3, 4, 5, 6]
    assert world.old.dropped == [6, 0], "neither the link nor the model, linked or not"
    monkeypatch.setattr(swap_module, "_WARM_UP_S", 0.0)
    with pytest.raises(WorkerUnavailableError, match="did not catch up"):
        await begin(world)
    assert world.old.dropped[2:] in ([7, 0], [6, 0])  # it may not even have come to an attempt
    assert world.core.epoch == 1
    assert world.membership.drafters[0].status().model.name == "old"
    await finish(world)


async def test_whoever_orders_a_swap_and_leaves_in_the_warm_up_leaves_the_old_one_in_place(world):
    swap = begin(world)
    await world.until(lambda: 2 in world.core.warming_epochs)
    swap.cancel()
    with pytest.raises(asyncio.CancelledError):
        await swap
    assert world.swapper.status.last_error == "CancelledError"
    await old_one_stays(world)


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
    assert (member.link_epoch, member.warming_epoch) == (2, 0)
    world.verify()
    world.target.say(LinkLost(2, "cable"))
    await world.until(lambda: world.core.epoch == 3)
    await finish(world)


async def test_a_new_link_lost_while_the_old_one_drains_is_formed_anew(world):
    swap = begin(world)
    await warmed(world)
    world.target.say(LinkLost(2, "cable"))
    await settled()
    world.verify()
    await swap
    await world.until(lambda: world.core.epoch == 3)
    assert world.membership.drafters[0].status().model.name == "new"
    await finish(world)


async def test_the_verifier_is_lost_while_the_old_one_drains(world):
    swap = begin(world)
    await warmed(world)
    world.target.end()
    await swap
    world.verifier()
    await world.until(lambda: world.core.epoch == 3)
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
    assert world.core.epoch == 2
    await finish(world)


async def test_a_model_error_is_a_failed_swap(world):
    world.old.load_error = ModelError("models/new: no config.json")
    with pytest.raises(ModelError):
        await begin(world)
    await old_one_stays(world)
