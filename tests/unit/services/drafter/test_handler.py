from __future__ import annotations

import asyncio
import threading
import time
import weakref
from dataclasses import replace

import pytest
import structlog

from minedraft.errors import IncompatibleWorkerError, ModelError, WorkerUnavailableError
from minedraft.link.options import LinkOptions
from minedraft.model.executor import DeviceExecutor
from minedraft.plans import DraftPlan, DraftRow, OpenRow
from minedraft.services.drafter import handler as handler_module
from minedraft.services.drafter.handler import Handler
from minedraft.types import RowId, RowParams
from tests.fake_runner import FakeRunner, continuation
from tests.worker_setup import IDENTITY, FormsLate, LinkEnd, lost_at_once, spec


class Sender(LinkEnd):
    def __init__(self, spec, on_lost) -> None:
        super().__init__(spec, on_lost)
        self.packets: list = []

    def send(self, packet) -> None:
        self.packets.append(packet)


class Loader:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.runner = FakeRunner()
        self.runner.info = replace(self.runner.info, name="new")

    def fingerprint(self, model: str) -> str:
        return "f" if model == "models/new" else "other"

    def load(self, model: str) -> FakeRunner:
        if self.error is not None:
            raise self.error
        return self.runner


class World:
    def __init__(self, executor) -> None:
        self.runner = FakeRunner()
        self.loader = Loader()
        self.senders: dict[int, Sender] = {}
        self.handler = Handler(
            runner=self.runner,
            kind="model",
            max_catch_up_tokens=2048,
            loader=self.loader,
            executor=executor,
            identity=IDENTITY,
            link_options=LinkOptions(),
        )
        self.notes: list = []
        self.handler.push = self.notes.append

    async def form_sender(self, spec, *, on_lost, options):
        self.senders[spec.epoch] = Sender(spec, on_lost)
        return self.senders[spec.epoch]

    async def run(self, epoch: int, *, step_id: int = 1):
        """A step for a row of three tokens."""
        plan = DraftPlan(
            step_id,
            0,
            epoch,
            (DraftRow(RowId(1), 3, (), 2),),
            (OpenRow(RowId(1), (1, 2, 3), (), RowParams()),),
        )
        return await (await self.handler.start_plan(plan, time.perf_counter_ns()))


@pytest.fixture
async def world(monkeypatch):
    async with DeviceExecutor() as executor:
        world = World(executor)
        monkeypatch.setattr(handler_module, "form_sender", world.form_sender)
        yield world


async def test_a_plan_of_a_linked_epoch_runs_and_its_drafts_go_over_that_link(world):
    assert await world.handler.form_link(spec(1)) == "a link"
    result = await world.run(1)
    assert (result.num_draft_tokens, result.epoch) == (2, 1)
    (packet,) = world.senders[1].packets
    assert list(packet.rows[0].token_ids) == continuation((1, 2, 3), 2)


async def test_a_plan_of_a_dead_epoch_is_void(world):
    assert await world.run(7) is None
    assert world.runner.calls == []


async def test_a_new_link_of_the_same_model_ends_the_old_one(world):
    await world.handler.form_link(spec(1))
    await world.handler.form_link(spec(2))
    assert world.senders[1].is_closed
    assert await world.run(1) is None
    assert await world.run(2) is not None


async def test_a_new_session_gives_all_links_up(world):
    await world.handler.form_link(spec(1))
    await world.handler.begin_session()
    assert world.senders[1].is_closed
    assert await world.run(1) is None


async def test_no_session_begins_while_the_device_hangs(world):
    hang = threading.Event()
    stuck = world.handler._executor.submit(hang.wait)
    beginning = asyncio.create_task(world.handler.begin_session())
    await asyncio.wait((beginning,), timeout=0.05)
    assert not beginning.done()
    hang.set()
    await beginning
    await stuck


async def test_a_loaded_model_drafts_for_links_to_come_while_the_old_one_goes_on(world):
    await world.handler.form_link(spec(1))
    info = await world.handler.load_model("models/new", "f")
    assert (info.name, info.drafter_kind, info.num_blocks) == ("new", "model", 0)
    assert world.handler.info().model.name == "new"
    await world.handler.form_link(spec(2))
    assert not world.senders[1].is_closed
    await world.run(1)
    await world.run(2)
    assert world.runner.num_fed == world.loader.runner.num_fed == 4
    await world.handler.drop_link(1)
    assert world.senders[1].is_closed
    assert await world.run(1) is None
    assert await world.run(2) is not None


async def test_a_model_of_another_vocabulary_is_not_even_loaded(world):
    world.loader.error = AssertionError("loaded")
    with pytest.raises(IncompatibleWorkerError, match="'models/odd' has tokenizer fingerprint"):
        await world.handler.load_model("models/odd", "f")
    assert world.handler.info().model.name == "fake"


async def test_a_model_that_cannot_be_loaded_leaves_the_old_one(world):
    world.loader.error = ModelError("no config.json")
    with pytest.raises(ModelError):
        await world.handler.load_model("models/new", "f")
    await world.handler.form_link(spec(1))
    await world.run(1)
    assert world.runner.num_fed


async def test_a_lost_link_is_told_once_and_its_plans_are_void(world):
    await world.handler.form_link(spec(1))
    for _ in range(2):
        world.senders[1].lose()
        await asyncio.sleep(0)
    assert [(note.epoch, note.reason) for note in world.notes] == [(1, "cable")]
    assert world.senders[1].is_closed
    assert await world.run(1) is None


async def test_a_link_that_is_lost_while_it_is_formed_is_none_and_is_closed(world, monkeypatch):
    monkeypatch.setattr(handler_module, "form_sender", lost_at_once(world.form_sender))
    with pytest.raises(WorkerUnavailableError, match="link 1 was lost while it was formed"):
        await world.handler.form_link(spec(1))
    assert world.senders[1].is_closed
    assert await world.run(1) is None
    monkeypatch.setattr(handler_module, "form_sender", world.form_sender)
    await world.handler.form_link(spec(2))
    assert await world.run(2) is not None


async def test_a_link_lost_in_an_old_session_is_not_the_new_ones(world):
    """Every coordinator numbers its links from 1."""
    await world.handler.form_link(spec(1))
    world.senders[1].lose()  # told by the link's thread, heard after the next link is there
    await world.handler.begin_session()
    await world.handler.form_link(spec(1))
    await asyncio.sleep(0)
    assert world.notes == []
    assert await world.run(1) is not None


async def test_a_link_of_an_old_session_that_forms_late_takes_no_new_ones_place(world, monkeypatch):
    forming = FormsLate(world.form_sender)
    monkeypatch.setattr(handler_module, "form_sender", forming)
    late = asyncio.ensure_future(world.handler.form_link(spec(1)))
    await forming.begun.wait()
    old = world.senders[1]
    await world.handler.begin_session()
    monkeypatch.setattr(handler_module, "form_sender", world.form_sender)
    await world.handler.form_link(spec(1))
    forming.go_on.set()
    with pytest.raises(WorkerUnavailableError, match="link 1: another session began"):
        await late
    assert old.is_closed
    await world.run(1)
    assert len(world.senders[1].packets) == 1


async def test_a_model_of_an_old_session_drafts_for_no_new_one(world):
    begun, go_on = threading.Event(), threading.Event()

    def load(_model):
        begun.set()
        go_on.wait(5)
        return FakeRunner()

    world.loader.load = load
    late = asyncio.ensure_future(world.handler.load_model("models/new", "f"))
    await asyncio.to_thread(begun.wait, 5)
    await world.handler.begin_session()
    go_on.set()
    with pytest.raises(WorkerUnavailableError, match="'models/new': another session began"):
        await late
    await world.handler.form_link(spec(1))
    await world.run(1)
    assert world.runner.num_fed


async def test_a_swap_that_failed_puts_the_old_model_back(world):
    await world.handler.form_link(spec(1))
    await world.handler.load_model("models/new", "f")
    await world.handler.form_link(spec(2))
    await world.handler.drop_link(2)
    assert world.handler.info().model.name == "fake"
    await world.handler.load_model("models/new", "f")
    await world.handler.drop_link(0)  # never linked
    assert world.handler.info().model.name == "fake"
    assert await world.run(1) is not None


async def test_the_heap_is_trimmed_when_the_last_step_has_let_go_of_a_dropped_links_model(
    world, monkeypatch
):
    class Slow(FakeRunner):
        def forward(self, rows):
            begun.set()
            trimmed.wait(0.2)  # a trim that does not wait for this step finds the model held
            return super().forward(rows)

    def give_back():
        held.append(slow() is not None)
        trimmed.set()

    begun, trimmed, held = threading.Event(), threading.Event(), []
    monkeypatch.setattr(handler_module, "give_back", give_back)
    world.loader.runner = Slow()
    slow = weakref.ref(world.loader.runner)
    await world.handler.load_model("models/new", "f")
    await world.handler.form_link(spec(1))
    world.loader.runner = FakeRunner()
    await world.handler.load_model("models/new", "f")
    await world.handler.form_link(spec(2))
    async with asyncio.TaskGroup() as group:
        group.create_task(world.run(1))
        await asyncio.to_thread(begun.wait, 5)
        await world.handler.drop_link(1)
    assert held == [False]


async def test_a_link_with_q_sends_distributions(world):
    await world.handler.form_link(spec(1, q_width=4))
    await world.run(1)
    assert len(world.senders[1].packets[0].rows[0].q) == 2


async def test_info_says_the_kind_and_no_pool(world):
    info = world.handler.info()
    assert (info.model.drafter_kind, info.model.num_blocks) == ("model", 0)
    assert info.transports == ("gloo", "grpc"), "local links are for tests"


# -- drawing ahead --------------------------------------------------------------------------


def ahead_plan(step_id: int, base_len: int, new=(), *, k=4, opens=()) -> DraftPlan:
    rows = (DraftRow(RowId(1), base_len, tuple(new), k),)
    return DraftPlan(step_id, 0, 1, rows, tuple(opens), may_run_ahead=True)


OPENED = OpenRow(RowId(1), (1, 2, 3), (), RowParams())


class Gate:
    """Lets forward passes of a runner begin one by one."""

    def __init__(self, runner) -> None:
        self._forward, runner.forward = runner.forward, self.forward
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def forward(self, rows):
        self.begun.release()
        self.go.acquire()
        return self._forward(rows)


async def drawn(world, count: int) -> None:
    while world.handler._links[1].engine.ahead.num_drawn < count:  # noqa: ASYNC110 nobody says so
        await asyncio.sleep(0)


@pytest.fixture
async def ahead(world):
    world.handler._run_ahead = None
    await world.handler.form_link(spec(1))
    return world


async def test_it_draws_ahead_while_no_plan_is_queued(ahead):
    await (await ahead.handler.start_plan(ahead_plan(1, 3, opens=[OPENED]), 0))
    await drawn(ahead, 5)
    calls = len(ahead.runner.calls)
    new = continuation((1, 2, 3), 5)
    result = await (await ahead.handler.start_plan(ahead_plan(2, 8, new), 0))
    assert (result.num_ahead_tokens, len(ahead.runner.calls)) == (4, calls)
    usage = await ahead.handler.usage()
    assert (usage.num_ahead_tokens, usage.num_ahead_used_tokens) == (5, 4)
    assert list(ahead.senders[1].packets[-1].rows[0].token_ids) == continuation((1, 2, 3, *new), 4)


async def test_a_plan_waits_for_at_most_one_pass(ahead):
    gate = Gate(ahead.runner)
    first = await ahead.handler.start_plan(ahead_plan(1, 3, k=1, opens=[OPENED]), 0)
    gate.go.release()
    await first
    await asyncio.to_thread(gate.begun.acquire)
    await asyncio.to_thread(gate.begun.acquire)  # a pass ahead is under way
    now_ns = time.perf_counter_ns()
    second = await ahead.handler.start_plan(ahead_plan(2, 4, (9,), k=1), now_ns)
    num_calls = len(ahead.runner.calls)
    for _ in range(3):
        gate.go.release()
    await second
    fed = [list(call[0].token_ids) for call in ahead.runner.calls[num_calls:]]
    assert fed[1][-1] == 9, "the pass that was under way, then the plan"
    assert (await ahead.handler.usage()).longest_ahead_wait_ns > 0
    for _ in range(9):
        gate.go.release()


async def test_a_dropped_link_draws_no_more(ahead):
    gate = Gate(ahead.runner)
    first = await ahead.handler.start_plan(ahead_plan(1, 3, k=1, opens=[OPENED]), 0)
    gate.go.release()
    await first
    dropping = asyncio.create_task(ahead.handler.drop_link(1))
    for _ in range(9):
        gate.go.release()
    await dropping
    num_calls = len(ahead.runner.calls)
    await ahead.handler._executor.run(lambda: None)
    assert len(ahead.runner.calls) == num_calls <= 2


async def test_a_pass_that_fails_is_logged_and_the_next_plan_is_answered(ahead, monkeypatch):
    first = await ahead.handler.start_plan(ahead_plan(1, 3, k=1, opens=[OPENED]), 0)
    engine = ahead.handler._links[1].engine

    def fail() -> None:
        engine.ahead.stop()
        raise ModelError("no")

    monkeypatch.setattr(engine, "run_ahead", fail)
    with structlog.testing.capture_logs() as lines:
        await first
        while not lines:  # noqa: ASYNC110 the loop says so, nobody else
            await asyncio.sleep(0)
    assert [(line["event"], line["reason"]) for line in lines] == [("ahead.failed", "no")]
    assert (await (await ahead.handler.start_plan(ahead_plan(2, 4, (9,)), 0))).num_rows == 1
