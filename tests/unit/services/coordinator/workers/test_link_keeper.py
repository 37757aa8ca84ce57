from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from minedraft.errors import ProtocolError, WorkerUnavailableError
from minedraft.plans import LinkLost
from minedraft.services.coordinator.workers.supervised import Supervised
from tests.engine_world import make_sample, read
from tests.membership_world import MembershipWorld, settled
from tests.worker_doubles import continuation


@pytest.fixture
async def world(monkeypatch):
    async with MembershipWorld(monkeypatch) as world:
        yield world


async def linked(world):
    workers = world.verifier(), world.drafter()
    await world.until(lambda: world.core.epoch == 1)
    return workers


def rest_for(monkeypatch, pause_s: float) -> None:
    """Every failure asks for this pause."""
    failed = Supervised.failed

    def note(peer, err):
        failed(peer, err)
        peer.pause_s = pause_s

    monkeypatch.setattr(Supervised, "failed", note)


async def test_a_link_that_fails_is_left_alone_for_a_while(world, monkeypatch):
    rest_for(monkeypatch, 3600.0)
    world.verifier()
    drafter = world.drafter()
    drafter.form_error = WorkerUnavailableError("no route")
    await world.until(lambda: drafter.formed == [1])
    world.membership.links.look()
    await settled()
    assert drafter.formed == [1]
    sample = make_sample("r")  # everybody else goes on
    world.engine.submit([sample])
    world.work()
    assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 6)


async def test_a_new_session_at_either_end_is_not_made_to_wait(world, monkeypatch):
    verifier, drafter = await linked(world)
    rest_for(monkeypatch, 3600.0)
    monkeypatch.setattr(asyncio, "sleep", lambda _s, sleep=asyncio.sleep: sleep(0))
    verifier.say(LinkLost(1, "cable"))
    await settled()
    assert drafter.formed == [1]
    drafter.end()
    await world.until(lambda: drafter.is_closed)
    world.drafter()
    await world.until(lambda: world.core.epoch == 2)


@pytest.mark.parametrize("err", [KeyError("x"), asyncio.CancelledError(), ValueError()], ids=repr)
async def test_whatever_a_link_fails_with_ends_nothing_else(world, err):
    world.verifier()
    drafter, other = world.drafter(), world.drafter("drafter-b:1")
    drafter.form_error = err
    member = world.membership.drafters[0]
    await world.until(lambda: member.last_error.startswith("link: "))
    await world.until(lambda: bool(world.core.epoch))
    assert other.is_open
    drafter.form_error = None
    await world.until(lambda: len(world.core._drafters.epochs) == 2)
    assert member.last_error == ""


async def test_a_link_that_does_not_last_is_said_so_and_tried_again(world):
    verifier, _ = await linked(world)
    member = world.membership.drafters[0]
    with capture_logs() as logs:
        for epoch in range(1, 20):
            verifier.say(LinkLost(epoch, "cable"))
            await world.until(lambda epoch=epoch: world.core.epoch == epoch + 1)
    assert [e["why"] for e in logs if e["event"] == "link.failed"] == ["lost: cable"]
    verifier.say(LinkLost(20, "x" * 10**6))
    world.membership.drafters[0].is_joining = True
    await world.until(lambda: member.last_error)
    assert len(member.last_error) < 400


@pytest.mark.parametrize("epoch", [0, 2, 2**64 - 1])
async def test_a_loss_of_a_link_that_never_was_ends_that_session(world, epoch):
    verifier, drafter = await linked(world)
    drafter.say(LinkLost(epoch, "made up"))
    await world.until(lambda: drafter.is_closed)
    assert world.core.verifier_info is not None
    assert not verifier.is_closed


async def test_a_drafter_cannot_take_anothers_link_down(world):
    _, first = await linked(world)
    second = world.drafter("drafter-b:1")
    await world.until(lambda: len(world.core._drafters.epochs) == 2)
    second.say(LinkLost(1, "cable"))
    await world.until(lambda: second.is_closed)
    assert "another drafter's" in world.membership.drafters[1].last_error
    assert not first.is_closed
    assert 1 in world.core._drafters.epochs


async def test_a_drafter_cannot_keep_anothers_link_from_being_formed(world):
    _, first = await linked(world)
    second = world.drafter("drafter-b:1")
    gate = second.form_gate = asyncio.Event()
    await world.until(lambda: second.formed == [2])
    first.say(LinkLost(2, "made up"))
    await world.until(lambda: first.is_closed)
    assert "another drafter's" in world.membership.drafters[0].last_error
    gate.set()
    await world.until(lambda: 2 in world.core._drafters.epochs)
    assert second.formed == [2]


async def test_the_verifier_has_an_end_of_every_link(world):
    await linked(world)
    with pytest.raises(ProtocolError, match="epoch=5, no link has that number"):
        world.membership.links.lost(LinkLost(5, "cable"))
