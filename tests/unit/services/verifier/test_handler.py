from __future__ import annotations

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from minedraft.errors import WorkerUnavailableError
from minedraft.link.endpoints import LinkCounters
from minedraft.link.options import LinkOptions
from minedraft.model.executor import DeviceExecutor
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.plans import OpenRow, VerifyPlan, VerifyRow
from minedraft.services.verifier import handler as handler_module
from minedraft.services.verifier.handler import Handler
from minedraft.services.verifier.verify_engine import VerifyEngine
from minedraft.types import Acceptance, RowId, RowParams
from tests.fake_runner import FakeRunner, continuation
from tests.worker_setup import IDENTITY, FormsLate, LinkEnd, lost_at_once, spec


class Receiver(LinkEnd):
    def __init__(self, spec, on_lost) -> None:
        super().__init__(spec, on_lost)
        self.packets: asyncio.Queue = asyncio.Queue()
        self.counters = LinkCounters(received=9, late=2, bad_rows=1)
        self.asked: list[tuple] = []

    async def take(self, batch, step_id, timeout_s):
        self.asked.append((batch, step_id, timeout_s))
        return await self.packets.get()


class World:
    def __init__(self, executor) -> None:
        self.step_id = 4
        self.engine = VerifyEngine(FakeRunner(), Acceptance.COUPLED)
        self.receivers: dict[int, Receiver] = {}
        self.handler = Handler(
            engine=self.engine,
            executor=executor,
            identity=IDENTITY,
            model=FakeRunner().info,
            acceptance="coupled",
            rendezvous=None,
            link_options=LinkOptions(),
            link_address="public:9",
        )
        self.notes: list = []
        self.handler.push = self.notes.append

    async def form_receiver(self, spec, *, on_lost, vocab_size, rendezvous, options):
        assert vocab_size == self.handler.info().model.vocab_size
        self.receivers[spec.epoch] = Receiver(spec, on_lost)
        return self.receivers[spec.epoch]

    def plan(self, epoch: int, *, k: int = 2) -> VerifyPlan:
        row = VerifyRow(RowId(1), 3, (), 0, 3, k, (0, 1), 0)
        opens = (OpenRow(RowId(1), (1, 2, 3), (), RowParams()),)
        self.step_id += 1
        return VerifyPlan(self.step_id, 0, epoch, (row,), opens, draft_timeout_ns=3 * 10**9)

    async def start(self, epoch: int, *, k: int = 2):
        plan = self.plan(epoch, k=k)
        now_ns = time.perf_counter_ns()
        waiting = self.handler.drafts(plan)
        packet = await waiting if waiting is not None else None
        return await self.handler.start_plan(plan, now_ns, packet, time.perf_counter_ns())


@pytest.fixture
async def world(monkeypatch):
    async with DeviceExecutor() as executor:
        world = World(executor)
        monkeypatch.setattr(handler_module, "form_receiver", world.form_receiver)
        yield world


async def test_a_step_waits_for_its_drafts_and_is_then_queued(world):
    assert await world.handler.form_link(spec(1)) == "a link"
    starting = asyncio.ensure_future(world.start(1))
    await asyncio.sleep(0)
    assert not starting.done()
    assert world.receivers[1].asked == [(0, 5, 3.0)]
    truth = continuation((1, 2, 3), 3)
    drafted = DraftedRow(1, 3, tuple(truth[:2]))
    world.receivers[1].packets.put_nowait(DraftPacket(1, 5, 0, (drafted,)))
    result = await (await starting)
    assert list(result.rows[0].token_ids) == truth


async def test_drafts_that_do_not_come_are_done_without(world):
    await world.handler.form_link(spec(1))
    world_start = asyncio.ensure_future(world.start(1))
    world_start_receiver = world.receivers[1]
    world_start_receiver.packets.put_nowait(None)
    result = await (await world_start)
    assert list(result.rows[0].token_ids) == continuation((1, 2, 3), 1)
    assert result.num_stale_drafts == 1


async def test_a_step_of_no_link_waits_for_nothing(world):
    result = await (await world.start(0, k=0))
    assert result.rows[0].token_ids == tuple(continuation((1, 2, 3), 1))
    assert (await (await world.start(9))).num_stale_drafts == 1


async def test_links_live_side_by_side(world):
    await world.handler.form_link(spec(1))
    await world.handler.form_link(spec(2))
    assert not world.receivers[1].is_closed


async def test_a_new_session_forgets_rows_and_links(world):
    await world.handler.form_link(spec(1))
    await (await world.start(0, k=0))
    assert world.engine.num_rows == 1
    await world.handler.begin_session()
    assert world.engine.num_rows == 0
    assert world.receivers[1].is_closed


async def test_a_lost_link_is_told_once(world):
    await world.handler.form_link(spec(1))
    for _ in range(2):
        world.receivers[1].lose()
        await asyncio.sleep(0)
    assert [(note.epoch, note.reason) for note in world.notes] == [(1, "cable")]
    assert world.receivers[1].is_closed


async def test_the_end_of_a_link_says_what_came_over_it(world):
    for epoch in (1, 2):
        await world.handler.form_link(spec(epoch))
    with capture_logs() as lines:
        world.receivers[1].lose()
        await asyncio.sleep(0)
        world.handler.close()
    counted = {"received": 9, "late": 2, "bad_rows": 1, "malformed": 0}
    assert [(line["event"], line["epoch"]) for line in lines] == [
        ("link.lost", 1),
        ("link.closed", 2),
    ]
    assert all(counted.items() <= line.items() for line in lines)


@pytest.mark.parametrize(
    ("packet", "event"),
    [
        (None, "drafts.missing"),
        (DraftPacket(1, 5, 0, (), num_bad_rows=1), "drafts.malformed"),
        (DraftPacket(1, 5, 0, ()), None),
    ],
)
async def test_missing_and_malformed_drafts_are_said_once_with_what_came_so_far(
    world, packet, event
):
    await world.handler.form_link(spec(1))
    with capture_logs() as lines:
        for _ in range(3):
            world.receivers[1].packets.put_nowait(packet)
            assert await world.handler.drafts(world.plan(1)) is packet
    assert [line["event"] for line in lines] == ([event] if event else [])
    assert all(line["source"] == 1 and line["late"] == 2 for line in lines)


async def test_a_link_that_is_lost_while_it_is_formed_is_none_and_is_closed(world, monkeypatch):
    monkeypatch.setattr(handler_module, "form_receiver", lost_at_once(world.form_receiver))
    with pytest.raises(WorkerUnavailableError, match="link 1 was lost while it was formed"):
        await world.handler.form_link(spec(1))
    assert world.receivers[1].is_closed
    assert world.notes == []


@pytest.mark.parametrize("is_entered", [True, False])
async def test_a_link_lost_in_an_old_session_is_not_the_new_ones(world, monkeypatch, is_entered):
    """Every coordinator numbers its links from 1."""
    if is_entered:
        await world.handler.form_link(spec(1))
        world.receivers[1].lose()  # told by the link's thread, heard after the session has begun
    else:

        async def refuse(spec, **options):
            (await world.form_receiver(spec, **options)).lose()
            await asyncio.sleep(0)
            raise WorkerUnavailableError("no rendezvous")

        monkeypatch.setattr(handler_module, "form_receiver", refuse)
        with pytest.raises(WorkerUnavailableError):
            await world.handler.form_link(spec(1))
        monkeypatch.setattr(handler_module, "form_receiver", world.form_receiver)
    await world.handler.begin_session()
    await asyncio.sleep(0)
    assert await world.handler.form_link(spec(1)) == "a link"
    assert world.notes == []
    assert not world.receivers[1].is_closed


async def test_a_link_of_an_old_session_that_forms_late_takes_no_new_ones_place(world, monkeypatch):
    forming = FormsLate(world.form_receiver)
    monkeypatch.setattr(handler_module, "form_receiver", forming)
    late = asyncio.ensure_future(world.handler.form_link(spec(1)))
    await forming.begun.wait()
    old = world.receivers[1]
    await world.handler.begin_session()
    monkeypatch.setattr(handler_module, "form_receiver", world.form_receiver)
    await world.handler.form_link(spec(1))
    forming.go_on.set()
    with pytest.raises(WorkerUnavailableError, match="link 1: another session began"):
        await late
    assert old.is_closed
    old.lose()
    await asyncio.sleep(0)
    assert not world.receivers[1].is_closed
    world.receivers[1].packets.put_nowait(None)
    await (await world.start(1))
    assert world.receivers[1].asked


async def test_info_says_what_the_coordinator_compares(world):
    info = world.handler.info()
    assert (info.acceptance, info.link_address, info.model.name) == (
        "coupled",
        "public:9",
        "fake",
    )
