from __future__ import annotations

import asyncio

import pytest

from minedraft.admin import SwapOrder
from minedraft.errors import (
    IncompatibleWorkerError,
    ModelError,
    SwapInProgressError,
    WorkerUnavailableError,
)
from minedraft.plans import LinkLost
from minedraft.services.coordinator.core.draft_source import MAX_MISSED_STEPS
from minedraft.services.coordinator.workers import swap as swap_module
from tests.membership_world import settled
from tests.swap_world import GREEN, IN_PLACE, begin, finish, old_one_stays, swap_world, warmed


@pytest.fixture
async def world(monkeypatch):
    async with swap_world(monkeypatch) as world:
        yield world


# -- what fails: the old one stays ----------------------------------------------------------


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
        await world.until(lambda e=epoch: swap.done() or e in world.warming)
        if epoch in world.warming:
            world.target.say(LinkLost(epoch, "cable"))
            await world.until(lambda e=epoch: e not in world.warming)
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
        await world.until(lambda e=epoch: e in world.warming)
        assert world.core.sources.newest == 1, "the old one drafts"
        world.target.say(LinkLost(epoch, "cable"))
    await warmed(world, 5)
    world.verify()
    assert (await swap).epoch == 5
    assert (world.swapper.status.num_done, world.swapper.status.num_failed) == (1, 0)
    await finish(world)


async def test_in_place_both_links_may_be_lost_and_the_new_model_takes_over(world):
    swap = begin(world)
    await world.until(lambda: 2 in world.warming)
    for epoch in (1, 2):
        world.target.say(LinkLost(epoch, "cable"))
    await world.until(lambda: 3 in world.warming)
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


async def test_in_place_the_old_model_goes_even_if_its_link_was_given_up_because_it_was_useless(
    world,
):
    """No link is formed in its place, at which the drafter would have dropped it by itself."""
    world.old.form_error = WorkerUnavailableError("no route")
    for _ in range(MAX_MISSED_STEPS):
        world.draft()
        world.verify(drafts_came=False)
    assert world.core.sources.newest == 0
    swap = begin(world)
    await world.until(lambda: world.old.loaded)
    world.old.form_error = None
    await world.until(lambda: world.warming)
    await warmed(world, world.warming[0])
    world.verify()
    await swap
    assert [model.name for model in world.old.models.values()] == ["new"]
    await finish(world)


async def test_a_link_in_the_making_that_takes_too_long_is_said(world):
    """Its old link was lost, another one hangs in its forming: the swap waits for that, in time."""
    gate = world.old.form_gate = asyncio.Event()
    world.target.say(LinkLost(1, "cable"))
    await world.until(lambda: world.old.formed == [1, 2])
    with pytest.raises(WorkerUnavailableError, match=r"a link of drafter drafter:1 .* 0\.1"):
        await world.swapper.swap(IN_PLACE, 0.2)
    gate.set()
    await world.until(lambda: world.core.sources.newest == 2)
    await finish(world)


async def test_a_model_that_loads_for_too_long_is_said(world):
    gate = world.old.load_gate = asyncio.Event()
    with pytest.raises(WorkerUnavailableError, match=r"still loading 'new' after 0\.1"):
        await world.swapper.swap(IN_PLACE, 0.2)
    gate.set()
    assert world.old.dropped == [0], "it may have loaded it just then"
    await old_one_stays(world)


@pytest.mark.parametrize("load_error", [WorkerUnavailableError("no disk"), None])
async def test_a_drafter_that_does_not_go_back_in_time_holds_up_nobody_but_the_next_swap(
    world, load_error
):
    """Whoever ordered the swap is told before it gives up; what is left to do goes on."""
    world.old.load_gate = asyncio.Event()
    gate = world.old.drop_gate = asyncio.Event()
    with pytest.raises(WorkerUnavailableError, match="still loading 'new'"):
        await world.swapper.swap(IN_PLACE, 0.2)
    with pytest.raises(SwapInProgressError, match="is still being put away"):
        await world.swapper.swap(IN_PLACE)
    world.old.load_gate = None
    world.old.load_error = load_error
    gate.set()
    await settled()
    swap = begin(world)
    if load_error is not None:
        with pytest.raises(WorkerUnavailableError, match="no disk"):
            await swap
    else:
        await warmed(world)
        world.verify()
        assert (await swap).epoch == 2
    await finish(world)


async def test_a_swap_that_fails_in_the_warm_up_is_told_in_time_however_slowly_it_is_undone(world):
    gate = world.old.drop_gate = asyncio.Event()
    with pytest.raises(WorkerUnavailableError, match="did not catch up within"):
        await world.swapper.swap(IN_PLACE, 0.2)
    assert world.membership.links._lent, "nobody else links it meanwhile"
    gate.set()
    await world.until(lambda: not world.membership.links._lent)
    assert world.old.dropped == [2, 0]
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


async def test_a_drafter_that_was_to_join_leaves_even_if_the_swap_is_cancelled_twice(world):
    """By whoever ordered it, and by the service that stops meanwhile."""
    swap = begin(world, SwapOrder(address=GREEN))
    await settled()
    swap.cancel()
    await asyncio.sleep(0)
    swap.cancel()
    with pytest.raises(asyncio.CancelledError):
        await swap
    await settled()
    assert world.membership.links._lent == set()
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
    await world.until(lambda: 2 in world.warming)
    world.old.models.clear()
    world.target.end()
    with pytest.raises(WorkerUnavailableError, match="one of its ends is not there"):
        await swap
    world.verifier()
    await world.until(lambda: world.core.sources.newest > 3)
    assert world.membership.drafters[0].status().model.name == "new"
    await finish(world)


async def test_another_process_that_dies_in_the_warm_up_leaves_the_old_one_in_place(world):
    green = world.drafter(GREEN)
    swap = begin(world, SwapOrder(address=GREEN))
    await world.until(lambda: 2 in world.warming)
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
    assert world.core.sources.newest == 1
    assert world.membership.drafters[0].status().model.name == "old"
    await finish(world)


async def test_whoever_orders_a_swap_and_leaves_in_the_warm_up_leaves_the_old_one_in_place(world):
    swap = begin(world)
    await world.until(lambda: 2 in world.warming)
    swap.cancel()
    with pytest.raises(asyncio.CancelledError):
        await swap
    assert world.swapper.status.last_error == "CancelledError"
    await old_one_stays(world)


async def test_a_model_error_is_a_failed_swap(world):
    world.old.load_error = ModelError("models/new: no config.json")
    with pytest.raises(ModelError):
        await begin(world)
    await old_one_stays(world)
