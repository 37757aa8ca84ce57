from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from minedraft.errors import ProtocolError, WorkerUnavailableError
from minedraft.plans import LinkLost
from minedraft.services.coordinator.workers.supervised import Supervised
from tests.engine_world import make_sample, read
from tests.membership_world import DRAFTER, MembershipWorld, settled
from tests.worker_doubles import continuation


@pytest.fixture
async def world(monkeypatch):
    async with MembershipWorld(monkeypatch) as world:
        yield world


async def linked(world):
    workers = world.verifier(), world.drafter()
    await world.until(lambda: world.core.sources.newest == 1)
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
    await world.until(lambda: world.core.sources.newest == 2)


@pytest.mark.parametrize("err", [KeyError("x"), asyncio.CancelledError(), ValueError()], ids=repr)
async def test_whatever_a_link_fails_with_ends_nothing_else(world, err):
    world.verifier()
    drafter, other = world.drafter(), world.drafter("drafter-b:1")
    drafter.form_error = err
    member = world.membership.drafters[0]
    await world.until(lambda: member.last_error.startswith("link: "))
    await world.until(lambda: bool(world.core.sources.newest))
    assert other.is_open
    drafter.form_error = None
    await world.until(lambda: len(world.sources) == 2)
    assert member.last_error == ""


async def test_a_link_that_does_not_last_is_said_so_and_tried_again(world):
    verifier, _ = await linked(world)
    member = world.membership.drafters[0]
    with capture_logs() as logs:
        for epoch in range(1, 20):
            verifier.say(LinkLost(epoch, "cable"))
            await world.until(lambda epoch=epoch: world.core.sources.newest == epoch + 1)
    assert [e["why"] for e in logs if e["event"] == "link.failed"] == ["lost: cable"]
    verifier.say(LinkLost(20, "x" * 10**6))
    world.membership.links.lend(world.membership.drafters[0])
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
    await world.until(lambda: len(world.sources) == 2)
    second.say(LinkLost(1, "cable"))
    await world.until(lambda: second.is_closed)
    assert "another drafter's" in world.membership.drafters[1].last_error
    assert not first.is_closed
    assert 1 in world.sources


async def test_a_drafter_cannot_keep_anothers_link_from_being_formed(world):
    _, first = await linked(world)
    second = world.drafter("drafter-b:1")
    gate = second.form_gate = asyncio.Event()
    await world.until(lambda: second.formed == [2])
    first.say(LinkLost(2, "made up"))
    await world.until(lambda: first.is_closed)
    assert "another drafter's" in world.membership.drafters[0].last_error
    gate.set()
    await world.until(lambda: 2 in world.sources)
    assert second.formed == [2]


async def test_the_verifier_has_an_end_of_every_link(world):
    await linked(world)
    with pytest.raises(ProtocolError, match="epoch=5, no link has that number"):
        world.membership.links.lost(LinkLost(5, "cable"))


# -- drafts that never arrive ---------------------------------------------------------------


def work_in_vain(world, num_steps: int = 3) -> None:
    """The drafter says that it is done, and its drafts are lost on the way."""
    for _ in range(num_steps):
        world.draft()
        world.verify(drafts_came=False)


async def decoding(world):
    await linked(world)
    sample = make_sample("r", max_tokens=60)
    world.engine.submit([sample])
    for _ in range(2):
        world.draft()
        world.verify()
    return sample


async def test_a_link_that_carries_nothing_is_formed_anew_and_drafts_flow_again(world):
    sample = await decoding(world)
    member = world.membership.drafters[0]
    work_in_vain(world)
    assert world.core.sources.newest == 0, "nobody waits for it"
    assert member.last_error == (
        "link: drafts of 3 steps in a row did not reach the verifier, "
        "though the drafter said that it had sent them"
    )
    await world.until(lambda: world.core.sources.newest == 2)
    assert "did not reach" in member.status().last_error, "until some do"
    accepted = sample.request.stats.total().num_accepted_tokens
    world.draft()
    world.verify()  # planned without a drafter
    world.draft()
    world.verify()
    assert sample.request.stats.total().num_accepted_tokens > accepted
    assert member.status().last_error == ""
    world.work()
    assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 60)


async def test_links_that_carry_nothing_one_after_the_other_are_left_alone_for_longer(
    world, monkeypatch
):
    """However long they stood: each of them costs several draft timeouts."""
    pauses = []
    failed = Supervised.failed

    def note(peer, err):
        late_s = peer._clock() + 60.0
        peer._clock = lambda: late_s
        failed(peer, err)
        if peer._event == "link.failed":
            pauses.append(peer._back_off._pause_s)
            peer.pause_s = 0.0

    monkeypatch.setattr(Supervised, "failed", note)
    monkeypatch.setattr(world.membership.links, "_reconnect_s", 0.2)
    sample = await decoding(world)
    for number in range(2, 6):
        work_in_vain(world)
        await world.until(lambda number=number: world.core.sources.newest == number)
        world.verify()  # planned without a drafter
    assert pauses == [0.2, 0.4, 0.8, 1.6]
    world.work()
    assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 60)


async def test_the_drafters_own_session_ends_the_doubt(world):
    await decoding(world)
    drafter = world.workers[DRAFTER]
    member = world.membership.drafters[0]
    work_in_vain(world)
    drafter.end()
    await world.until(lambda: drafter.is_closed)
    world.drafter()
    await world.until(lambda: bool(world.core.sources.newest))
    assert member.status().last_error == ""


async def test_a_suspect_is_said_so_in_the_status(world):
    await decoding(world)
    world.verify(drafts_came=False)  # and the drafter has not said a word
    member = world.membership.drafters[0]
    assert "no answer since" in member.status().last_error
    world.draft()
    assert member.status().last_error == ""
