from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from minedraft.errors import DrainingError, ProtocolError, WorkerUnavailableError
from minedraft.plans import LinkLost, WorkerUsage
from minedraft.services.coordinator.workers import membership as membership_module
from minedraft.services.coordinator.workers.discovery import DrafterName
from minedraft.services.coordinator.workers.supervised import Supervised
from tests.engine_world import make_sample, read
from tests.membership_world import DRAFTER, MembershipWorld, settled
from tests.worker_doubles import continuation


@pytest.fixture
async def world(monkeypatch):
    monkeypatch.setattr(membership_module, "_HELD_S", 0.0)
    async with MembershipWorld(monkeypatch) as world:
        yield world


async def test_a_verifier_and_a_drafter_join_and_are_linked(world):
    verifier, drafter = world.verifier(), world.drafter()
    await world.until(lambda: world.core.sources.newest == 1)
    assert verifier.formed == drafter.formed == [1]
    assert world.membership.model == verifier.info.model
    status = world.membership.status()
    assert [(w.role, w.connected, w.link_epoch) for w in status[:2]] == [
        ("verifier", True, 0),
        ("drafter", True, 1),
    ]
    assert status[1].link_description == "a link"


async def test_a_drafter_waits_for_a_verifier_to_be_compared_with(world):
    drafter = world.drafter()
    await settled()
    assert not drafter.is_open
    world.verifier()
    await world.until(lambda: world.core.sources.newest == 1)


async def test_a_drafter_with_another_vocabulary_is_refused_and_the_service_goes_on(world):
    world.verifier()
    world.drafter(fingerprint="other")
    member = world.membership.drafters[0]
    await world.until(lambda: "another vocabulary" in member.last_error)
    assert member.connection is None
    sample = make_sample("r")
    world.engine.submit([sample])
    world.work()
    assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 6)


async def test_a_drafter_that_lacks_the_links_transport_is_refused_before_a_session(world):
    world.verifier()
    drafter = world.drafter()
    drafter.info = replace(drafter.info, transports=("grpc",))
    member = world.membership.drafters[0]
    await world.until(lambda: member.last_error)
    assert member.last_error == "link=local: the verifier has local; the drafter has grpc"
    assert not drafter.is_open


async def test_workers_have_every_id_of_the_coordinators_tokenizer(world):
    world.membership.num_token_ids = 51
    verifier = world.verifier()
    await world.until(lambda: "vocab_size=50" in world.membership.verifier.last_error)
    verifier.leave()
    world.verifier(vocab_size=64)
    world.drafter()
    await world.until(lambda: "vocab_size=50" in world.membership.drafters[0].last_error)


async def test_a_drafter_with_a_shorter_context_drafts_up_to_it(world):
    world.verifier()
    drafter = world.drafter()
    drafter.info = replace(drafter.info, model=replace(drafter.info.model, max_model_len=12))
    await world.until(lambda: world.core.sources.newest == 1)
    sample = make_sample("r", max_tokens=30)
    world.engine.submit([sample])
    num_drafts_by_len = {}
    while not world.core.is_idle:
        for plan in drafter.plans:
            num_drafts_by_len |= {row.base_len: row.num_draft_tokens for row in plan.rows}
        world.draft()
        world.verify()
    assert max(num_drafts_by_len.values()) > 0
    assert all(length + k <= 12 for length, k in num_drafts_by_len.items())
    assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 30)


async def test_a_verifier_of_another_vocabulary_than_the_tokenizer_is_refused(world):
    world.verifier(fingerprint="other")
    await world.until(lambda: "tokenizer fingerprint" in world.membership.verifier.last_error)
    assert world.core.verifier_info is None


async def test_a_verifier_that_comes_back_must_have_the_same_model(world):
    first = world.verifier()
    await world.until(lambda: world.core.verifier_info is not None)
    first.end()
    await world.until(lambda: world.core.verifier_info is None)
    second = world.verifier(name="another", vocab_size=99)
    await world.until(lambda: "another model" in world.membership.verifier.last_error)
    second.leave()
    world.verifier()
    await world.until(lambda: world.core.verifier_info is not None)


async def test_losing_the_verifier_takes_the_links_down_and_they_are_formed_again(world):
    verifier, drafter = world.verifier(), world.drafter()
    await world.until(lambda: world.core.sources.newest == 1)
    verifier.end()
    await world.until(lambda: world.core.verifier_info is None)
    assert world.core.sources.newest == 0
    assert verifier.is_closed
    world.verifier()
    await world.until(lambda: world.core.sources.newest == 2)
    assert drafter.formed == [1, 2]


async def test_losing_the_drafter_means_no_drafts_until_it_is_back(world):
    world.verifier()
    drafter = world.drafter()
    await world.until(lambda: world.core.sources.newest == 1)
    drafter.end()
    await world.until(lambda: world.core.sources.newest == 0)
    assert world.membership.drafters[0].status().connected is False
    assert drafter.is_closed
    world.drafter()
    await world.until(lambda: world.core.sources.newest == 2)


@pytest.mark.parametrize("who", ["verifier", "drafter"])
async def test_a_lost_link_is_formed_anew_whoever_says_so(world, who):
    workers = {"verifier": world.verifier(), "drafter": world.drafter()}
    await world.until(lambda: world.core.sources.newest == 1)
    workers[who].say(LinkLost(1, "cable"))
    await world.until(lambda: world.core.sources.newest == 2)
    workers["verifier"].say(LinkLost(1, "told twice"))
    await settled()
    assert world.core.sources.newest == 2


async def test_a_link_that_does_not_form_is_tried_again_and_said_so(world):
    world.verifier()
    drafter = world.drafter()
    drafter.form_error = WorkerUnavailableError("no route")
    member = world.membership.drafters[0]
    await world.until(lambda: member.last_error == "link: no route")
    drafter.form_error = None
    await world.until(lambda: bool(world.core.sources.newest))
    assert member.last_error == ""


async def test_a_drafter_that_leaves_while_its_link_is_formed_gets_none(world):
    verifier = world.verifier()
    drafter = world.drafter()
    gate = drafter.form_gate = asyncio.Event()
    await world.until(lambda: drafter.formed == [1])
    drafter.end()
    await world.until(lambda: drafter.is_closed)
    gate.set()
    await settled()
    assert world.core.sources.newest == 0
    world.drafter()
    await world.until(lambda: world.core.sources.newest == 2)
    assert verifier.formed == [1, 2]


async def test_one_whose_link_does_not_form_does_not_hold_up_the_other(world):
    world.verifier()
    slow = world.drafter()
    gate = slow.form_gate = asyncio.Event()
    await world.until(lambda: slow.formed == [1])
    world.drafter("drafter-b:1")
    await world.until(lambda: world.core.sources.newest == 2)
    gate.set()
    await world.until(lambda: len(world.sources) == 2)


async def test_a_link_that_is_lost_before_it_is_entered_is_formed_anew(world):
    verifier = world.verifier()
    drafter = world.drafter()
    gate = drafter.form_gate = asyncio.Event()
    await world.until(lambda: drafter.formed == [1])
    verifier.say(LinkLost(1, "cable"))
    await settled()
    drafter.form_gate = None
    gate.set()
    await world.until(lambda: world.core.sources.newest == 2)
    assert drafter.formed == [1, 2]


async def test_a_request_that_the_verifier_hangs_at_is_given_up(world):
    sample = make_sample("r")
    world.engine.submit([sample])
    for _ in range(3):
        verifier = world.verifier()
        await world.until(lambda double=verifier: double.plans)
        verifier.leave()
        await world.membership._leave_stalled(world.membership.verifier, 1.25)
        await world.until(lambda: world.core.verifier_info is None)
    assert sample.request.is_finished
    with pytest.raises(ProtocolError, match="failed 3 times"):
        await read(sample.stream)


async def test_a_name_with_the_address_of_a_member_brings_no_second_one(monkeypatch):
    monkeypatch.setattr(membership_module, "_RESOLVE_S", 0.0)
    found = iter([frozenset({"a:1"})])

    async def resolve(_self):
        return next(found, frozenset({"a:1", "drafter:1"}))

    monkeypatch.setattr(DrafterName, "resolve", resolve)
    async with MembershipWorld(monkeypatch, drafters=("dns:drafters:1", "drafter:1")) as world:
        await world.until(lambda: len(world.membership.drafters) > 1)
        await settled()
        assert [m.address for m in world.membership.drafters] == ["drafter:1", "a:1"]


async def test_two_drafters_share_the_batches_and_one_takes_all_when_the_other_goes(world):
    world.verifier()
    first, second = world.drafter(), world.drafter("drafter-b:1")
    await world.until(lambda: len(world.sources) == 2)
    assert {world.core.sources.of_batch(b).source_id for b in range(2)} == {1, 2}
    first.end()
    await world.until(lambda: len(world.sources) == 1)
    assert second.is_open
    assert {world.core.sources.of_batch(b).source_id for b in range(2)} == {
        world.core.sources.newest
    }


async def test_a_nonsense_answer_ends_the_verifiers_session_and_the_output_stays_the_same(world):
    verifier = world.verifier()
    await world.until(lambda: world.core.verifier_info is not None)
    sample = make_sample("r")
    world.engine.submit([sample])
    verifier.say_nonsense()
    await world.until(lambda: verifier.is_closed)
    assert "committed length" in world.membership.verifier.last_error
    world.verifier()
    await world.until(lambda: world.core.verifier_info is not None)
    world.work()
    assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 6)


async def test_the_same_complaint_is_logged_once(monkeypatch):
    with capture_logs() as logs:
        async with MembershipWorld(monkeypatch) as world:
            await world.until(lambda: world.num_dials["verifier:1"] > 9)
    assert world.membership.verifier.last_error == "verifier:1 is not there"
    lost = [entry for entry in logs if entry["event"] == "worker.lost"]
    assert [entry["address"] for entry in lost] == ["verifier:1"]


async def test_who_holds_the_verifier_is_said_and_drafters_are_left_to_it(world):
    verifier, drafter = world.verifier(), world.drafter()
    verifier.held_by = drafter.held_by = "coordinator b"
    status = world.membership.status
    await world.until(lambda: "belongs to coordinator b" in status()[0].last_error)
    await settled()
    assert world.num_dials[DRAFTER] == 0
    assert "does not hold the verifier" in status()[1].last_error
    verifier.held_by = drafter.held_by = ""
    await world.until(lambda: world.core.sources.newest == 1)
    assert [worker.last_error for worker in status()[:2]] == ["", ""]


async def test_drafters_are_given_back_when_the_verifier_belongs_to_another_coordinator(world):
    """Else one coordinator has the verifier, the other one its drafters."""
    verifier, drafter = world.verifier(), world.drafter()
    await world.until(lambda: world.core.sources.newest == 1)
    verifier.end()
    verifier = world.verifier()
    verifier.held_by = "coordinator b"
    await world.until(lambda: not drafter.is_open)
    assert drafter.is_closed
    member = world.membership.drafters[0]
    assert (member.connection, member.sources) == (None, ())
    await settled()
    assert not drafter.is_open
    verifier.held_by = ""
    await world.until(lambda: world.core.sources.newest == 2)


async def test_drafters_stay_while_the_verifier_may_come_back_and_not_for_longer(monkeypatch):
    for keep_s, is_kept in ((60.0, True), (0.0, False)):
        monkeypatch.setattr(membership_module, "_KEEP_DRAFTERS_S", keep_s)
        async with MembershipWorld(monkeypatch) as world:
            verifier, drafter = world.verifier(), world.drafter()
            await world.until(lambda: world.core.sources.newest == 1)
            verifier.end()
            await world.until(lambda: world.core.verifier_info is None)
            await settled()
            assert drafter.is_open is is_kept
            world.verifier()
            await world.until(lambda: world.core.sources.newest == 2)


async def test_a_drafter_of_another_coordinator_is_asked_again_and_joins_when_it_is_free(world):
    world.verifier()
    drafter = world.drafter()
    drafter.held_by = "coordinator b"
    member = world.membership.drafters[0]
    await world.until(lambda: "belongs to coordinator b" in member.last_error)
    assert world.core.verifier_info is not None
    drafter.held_by = ""
    await world.until(lambda: world.core.sources.newest == 1)


async def test_a_request_that_three_verifier_processes_died_of_is_given_up(world):
    sample = make_sample("deadly")
    verifier = world.verifier()
    await world.until(lambda: world.core.verifier_info is not None)
    world.engine.submit([sample])
    for _ in range(3):
        verifier.end()
        await world.until(lambda: world.core.verifier_info is None)
        verifier = world.verifier()
        await world.until(lambda: world.core.verifier_info is not None)
    with pytest.raises(ProtocolError, match="3 verifier processes ended at a step with this"):
        await read(sample.stream)


@pytest.mark.parametrize("why", ["network", "drain"])
async def test_a_session_that_ends_otherwise_blames_nobody(world, why):
    """The same process is found behind the address, or the old one had said that it leaves."""
    sample = make_sample("innocent")
    verifier = world.verifier()
    await world.until(lambda: world.core.verifier_info is not None)
    world.engine.submit([sample])
    for _ in range(5):
        info = verifier.info
        if why == "network":
            verifier.end()
        else:
            verifier.leave()
            verifier.say(DrainingError("this worker is shutting down"))
        await world.until(lambda: world.core.verifier_info is None)
        verifier = world.verifier()
        if why == "network":
            verifier.info = info
        await world.until(lambda: world.core.verifier_info is not None)
    world.work()
    assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 6)


async def test_what_a_drafter_says_it_holds_is_in_the_status_while_it_is_there(world):
    world.verifier()
    drafter = world.drafter()
    await world.until(lambda: world.core.sources.newest == 1)
    drafter.say(WorkerUsage(8, 3, 2**30))
    await world.until(lambda: world.membership.status()[1].usage == WorkerUsage(8, 3, 2**30))
    drafter.end()
    await world.until(lambda: world.membership.status()[1].usage is None)


async def test_the_pauses_do_not_grow_while_another_coordinator_is_served(monkeypatch):
    """Else who stands by would be asleep when it is needed."""
    num_resets = Counter()
    monkeypatch.setattr(membership_module, "_HELD_S", 0.001)
    started_over = Supervised.started_over

    def counted(peer):
        num_resets[peer._facts["role"]] += 1
        started_over(peer)

    monkeypatch.setattr(Supervised, "started_over", counted)
    async with MembershipWorld(monkeypatch) as world:
        world.verifier().held_by = "coordinator b"
        await world.until(lambda: num_resets["verifier"] > 0)
