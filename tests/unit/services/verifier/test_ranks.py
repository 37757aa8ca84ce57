"""The unit of ranks with doubles for processes; real ones are in tests/integration."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from minedraft.errors import ModelError, WorkerUnavailableError
from minedraft.model.batch import RowInput
from minedraft.model.executor import DeviceExecutor
from minedraft.model.parallel import wire
from minedraft.services.verifier import ranks as module
from minedraft.services.verifier.config import VerifierConfig
from minedraft.services.verifier.ranks import Ranks, rank_device
from tests.tiny_models import make_tiny_llama


class Rank:
    """A rank's process."""

    started: list[Rank] = []  # noqa: RUF012 emptied by the fixture
    all_started: asyncio.Event

    def __init__(self, order) -> None:
        self.order = order
        self.pid = 1000 + order.rank
        self.is_up = asyncio.Event()
        self.killed = False
        self._code = asyncio.get_running_loop().create_future()
        Rank.started.append(self)
        if len(Rank.started) == order.size - 1:
            Rank.all_started.set()

    @classmethod
    async def start(cls, order):
        return cls(order)

    def end(self, code) -> None:
        if not self._code.done():
            self._code.set_result(code)

    async def up(self) -> None:
        await self.is_up.wait()

    async def ended(self):
        return await asyncio.shield(self._code)

    async def died(self) -> None:
        raise WorkerUnavailableError(f"rank {self.order.rank} ended with {await self.ended()}")

    def kill(self) -> None:
        self.killed = True
        self.end(-9)


class Group:
    """The group of ranks, of which only rank 0 is real."""

    def __init__(self, spec) -> None:
        self.spec = spec
        self.size = spec.size
        self.is_closed = False
        self.meeting_mode = Path(spec.store).parent.stat().st_mode & 0o777

    def broadcast(self, words) -> None:
        if words[1] == wire.Order.STOP:
            for rank in Rank.started:
                rank.end(0)

    def close(self) -> None:
        self.is_closed = True


class Runner:
    lead = None


@pytest.fixture
def doubles(monkeypatch):
    monkeypatch.setattr(Rank, "started", [])
    monkeypatch.setattr(Rank, "all_started", asyncio.Event(), raising=False)
    monkeypatch.setattr(module, "RankProcess", Rank)
    monkeypatch.setattr(module, "RankGroup", Group)
    monkeypatch.setattr(module, "refuse_ranks", lambda *_: None)
    monkeypatch.setattr(module, "load_runner", lambda *_args, **_kwargs: Runner())


@pytest.fixture
def tmpdir_watched(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


async def started(ranks, *, up=True):
    """Loading in progress, with all processes there."""
    task = asyncio.create_task(ranks.load())
    await Rank.all_started.wait()
    if up:
        for rank in Rank.started:
            rank.is_up.set()
    return task


def config(**options):
    return VerifierConfig(model="m", **{"tp_size": 3, "cpus": "", **options})


async def test_ranks_start_lead_and_stop(doubles, tmpdir_watched):
    async with DeviceExecutor() as executor, Ranks(config(device="cuda"), executor) as ranks:
        loading = await started(ranks)
        runner = await loading
        one, two = Rank.started
        assert [r.order.rank for r in (one, two)] == [1, 2]
        assert [r.order.device for r in (one, two)] == ["cuda:1", "cuda:2"]
        assert one.order.parent_pid == os.getpid()
        assert not list(tmpdir_watched.iterdir())  # they have met
        assert ranks.pids == (1001, 1002)
        assert len(ranks.background) == 1
        assert runner.lead is not None
        leader = ranks._leader
        assert leader._group.meeting_mode == 0o700
    assert leader._group.is_closed
    assert [await r.ended() for r in (one, two)] == [0, 0]


async def test_one_rank_starts_nothing(doubles):
    async with DeviceExecutor() as executor, Ranks(config(tp_size=1), executor) as ranks:
        runner = await ranks.load()
        assert isinstance(runner, Runner)
        assert runner.lead is None
        assert ranks.background == ()
        assert ranks.pids == ()


async def test_a_rank_that_dies_takes_the_others_down(doubles):
    async with DeviceExecutor() as executor, Ranks(config(), executor) as ranks:
        await (await started(ranks))
        Rank.started[1].end(7)
        with pytest.raises(WorkerUnavailableError, match="rank 2 ended with 7; the verifier ends"):
            await ranks.watch()
        assert Rank.started[0].killed


async def test_a_step_that_fails_takes_all_down(doubles):
    async with DeviceExecutor() as executor, Ranks(config(), executor) as ranks:
        runner = await (await started(ranks))

        def step():
            with runner.lead([RowInput([1], 0, [0], 1)]):
                raise RuntimeError("rank 0 of 3: another rank did nothing for 1 s")

        watching = asyncio.create_task(ranks.watch())
        with pytest.raises(RuntimeError):
            await executor.run(step)
        with pytest.raises(WorkerUnavailableError, match="did nothing for 1 s"):
            await watching
        assert all(rank.killed for rank in Rank.started)


async def test_a_rank_that_dies_before_it_is_up_ends_loading(doubles, tmpdir_watched):
    async with DeviceExecutor() as executor, Ranks(config(), executor) as ranks:
        loading = await started(ranks, up=False)
        Rank.started[0].end(1)
        with pytest.raises(WorkerUnavailableError, match="rank 1 ended with 1"):
            await loading
        assert Rank.started[1].killed
        assert not list(tmpdir_watched.iterdir())


@pytest.mark.parametrize("up", [False, True])
async def test_loading_that_is_given_up_leaves_no_rank(doubles, tmpdir_watched, monkeypatch, up):
    begun, go_on = threading.Event(), threading.Event()

    def load_slowly(*_args, **_options):
        begun.set()
        go_on.wait(5)
        return Runner()

    monkeypatch.setattr(module, "load_runner", load_slowly)
    async with DeviceExecutor() as executor:
        async with Ranks(config(), executor) as ranks:
            loading = await started(ranks, up=up)
            if up:
                await asyncio.to_thread(begun.wait, 5)
            loading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await loading
        assert all(rank.killed for rank in Rank.started)
        assert not list(tmpdir_watched.iterdir())
        go_on.set()


async def test_rank_0s_own_refusal_is_what_is_raised(doubles, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise ModelError("model m: no")

    monkeypatch.setattr(module, "load_runner", refuse)
    with pytest.raises(ModelError, match="model m: no"):
        async with DeviceExecutor() as executor, Ranks(config(), executor) as ranks:
            await (await started(ranks))
    assert all(rank.killed for rank in Rank.started)


async def test_a_rank_that_does_not_stop_is_killed(doubles, monkeypatch):
    monkeypatch.setattr(module, "_STOP_PATIENCE_S", 0.05)
    monkeypatch.setattr(Group, "broadcast", lambda *_: None)
    async with DeviceExecutor() as executor, Ranks(config(), executor) as ranks:
        await (await started(ranks))
    assert all(rank.killed for rank in Rank.started)


async def test_a_cancelled_service_kills_its_ranks(doubles):
    async def serve():
        async with DeviceExecutor() as executor, Ranks(config(), executor) as ranks:
            await (await started(ranks))
            serving.set()
            await asyncio.Event().wait()

    serving = asyncio.Event()
    task = asyncio.create_task(serve())
    await serving.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(rank.killed for rank in Rank.started)


async def test_heads_that_do_not_divide_start_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Rank, "started", [])
    monkeypatch.setattr(module, "RankProcess", Rank)
    path = make_tiny_llama(tmp_path / "m", hidden=144, heads=9, kv_heads=3)
    with pytest.raises(ModelError, match=r"tp_size=2.*Hq=9, Hkv=3"):
        async with (
            DeviceExecutor() as executor,
            Ranks(VerifierConfig(model=str(path), tp_size=2), executor) as ranks,
        ):
            await ranks.load()
    assert not Rank.started


def test_each_rank_has_a_gpu_of_its_own():
    assert [rank_device("cuda", rank) for rank in range(2)] == ["cuda:0", "cuda:1"]
    assert rank_device("cpu", 3) == "cpu"
