from __future__ import annotations

import pytest
import torch

from minedraft.errors import ProtocolError, StateError, WorkerUnavailableError
from minedraft.model.batch import RowInput
from minedraft.model.loader import load_runner
from minedraft.model.parallel import wire
from minedraft.model.parallel.leader import Leader, follow
from tests.rank_threads import RankThreads
from tests.rank_threads import rank_threads as rank_threads  # noqa: PLC0414 a fixture
from tests.tiny_models import make_tiny_llama

ROW = RowInput([5, 6, 7], 0, [0, 1], 1)


class Recorder:
    """A follower's runner that notes what it is told."""

    def __init__(self) -> None:
        self.steps = []

    def feed(self, rows):
        self.steps.append(rows)


@pytest.fixture
def ranks(tmp_path):
    return RankThreads(tmp_path, timeout_s=5)


@pytest.mark.parametrize("length", [1, wire.FRAME_WORDS - 10, wire.FRAME_WORDS, 20_000])
def test_followers_run_what_the_leader_runs_until_it_says_stop(ranks, length):
    rows = [RowInput([3] * length, 4, [1, 2], 1), ROW]

    def work(group):
        if group.rank == 0:
            leader = Leader(group, pytest.fail)
            for step in (rows, [ROW], rows):
                with leader.lead(step):
                    pass
            leader.stop()
            return None
        recorder = Recorder()
        follow(group, recorder)
        return recorder.steps

    _, second, third = ranks.run(3, work)
    assert second == third == [rows, [ROW], rows]


def test_a_step_that_fails_is_the_last_one(ranks):
    told = []

    def work(group):
        if group.rank == 1:
            with pytest.raises(WorkerUnavailableError, match="closed"):
                follow(group, Recorder())
            return
        leader = Leader(group, told.append)
        with pytest.raises(MemoryError), leader.lead([ROW]):
            raise MemoryError("no room")
        with pytest.raises(WorkerUnavailableError, match="no room"), leader.lead([ROW]):
            pytest.fail("went on")
        leader.stop()

    ranks.run(2, work)
    assert told == ["no room"]


def test_followers_that_are_out_of_step_end(ranks):
    def work(group):
        if group.rank == 0:
            group.broadcast(torch.zeros(wire.FRAME_WORDS, dtype=torch.int32))
            return
        with pytest.raises(ProtocolError, match="out of step"):
            follow(group, Recorder())

    ranks.run(2, work)


def test_rows_that_do_not_fit_are_refused_before_anybody_is_told(tmp_path, rank_threads):
    path = make_tiny_llama(tmp_path / "m")

    def work(group):
        runner = load_runner(path, num_blocks=4, block_size=4, ranks=group)
        if group.rank:
            follow(group, runner)
            return None
        leader = Leader(group, pytest.fail)
        runner.lead = leader.lead
        for row in (RowInput([300], 0, [0], 1), RowInput([1], 0, [9], 1), RowInput([], 0, [0], 0)):
            with pytest.raises(StateError):
                runner.forward([row])
        logits = runner.forward([ROW])
        leader.stop()
        return logits.shape

    assert rank_threads.run(2, work)[0] == (1, 300)
