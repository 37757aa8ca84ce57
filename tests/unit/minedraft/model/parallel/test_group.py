from __future__ import annotations

import os
import select
import socket
import threading
import time
from pathlib import Path

import pytest
import torch

from minedraft.errors import ModelError, WorkerUnavailableError
from minedraft.model.parallel.group import RankGroup, RankSpec, together
from tests.rank_threads import RankThreads


def listening_addresses():
    """Local address of every TCP socket this process listens on."""
    ours = set()
    for fd in Path("/proc/self/fd").iterdir():
        try:
            ours.add(str(fd.readlink()))
        except FileNotFoundError:
            continue  # the directory's own
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in ours:
                found.append(local.partition(":")[0])
    return found


def watched_for():
    """By listening TCP socket of this process: the events that an epoll of it waits for."""
    found = {}
    for fd in Path("/proc/self/fd").iterdir():
        info = Path("/proc/self/fdinfo") / fd.name
        for line in info.read_text().splitlines() if info.exists() else ():
            words = line.split()
            if words[0] == "tfd:" and _listens(int(words[1])):
                found[int(words[1])] = int(words[3], 16) & (select.EPOLLIN | select.EPOLLOUT)
    return found


def _listens(fd):
    try:
        copy = socket.socket(fileno=os.dup(fd))
    except OSError:
        return False
    with copy:
        return bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


@pytest.fixture
def ranks(tmp_path):
    return RankThreads(tmp_path)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_ranks_say_to_each_other(ranks, size, dtype):
    def work(group):
        x = torch.full((3, 5), group.rank + 1.0, dtype=dtype)
        summed = x.clone()
        group.all_reduce(summed)
        words = torch.arange(4, dtype=torch.int32) * (1 if group.rank == 0 else -1)
        group.broadcast(words)
        first = group.gather(x)
        return summed, group.all_gather(x), first, words, group.all_agree(ok=group.rank != 1)

    results = ranks.run(size, work)
    for rank, (summed, everywhere, first, words, agreed) in enumerate(results):
        assert torch.equal(summed, torch.full((3, 5), sum(range(size + 1)), dtype=dtype))
        assert [part[0, 0].item() for part in everywhere] == list(range(1, size + 1))
        assert (first is not None) == (rank == 0)
        assert words.tolist() == [0, 1, 2, 3]
        assert not agreed
    assert [part[0, 0].item() for part in results[0][2]] == list(range(1, size + 1))


def test_tensors_made_under_inference_mode_can_be_summed(ranks):
    def work(group):
        with torch.inference_mode():
            x = torch.ones(2, 3)
            group.all_reduce(x)
            return x

    assert all(torch.equal(x, torch.full((2, 3), 2.0)) for x in ranks.run(2, work))


def test_a_rank_that_leaves_ends_the_exchange_at_once(ranks):
    def work(group):
        if group.rank == 1:
            return None
        begin = time.monotonic()
        with pytest.raises(WorkerUnavailableError, match=r"rank 0 of 2: .*closed"):
            group.all_reduce(torch.ones(3))
        return time.monotonic() - begin

    assert ranks.run(2, work)[0] < 5


def test_a_rank_that_hangs_ends_the_exchange_after_the_timeout(tmp_path):
    over = threading.Event()

    def work(group):
        if group.rank == 1:
            over.wait(10)
            return
        with pytest.raises(WorkerUnavailableError, match=r"did nothing for 0\.3 s"):
            group.all_reduce(torch.ones(3))
        over.set()

    RankThreads(tmp_path, timeout_s=0.3).run(2, work)
    assert over.is_set()


def test_a_rank_waits_for_rank_0s_words_beyond_the_timeout(tmp_path):
    idle = threading.Event()

    def work(group):
        if group.rank == 0:
            idle.wait(1.0)  # nobody sets it: an idle second, of a timeout of 0.2
        words = torch.full((2,), group.rank, dtype=torch.int32)
        group.broadcast(words)
        x = torch.ones(1)
        group.all_reduce(x)
        return words.tolist(), x.item()

    assert RankThreads(tmp_path, timeout_s=0.2).run(2, work) == [([0, 0], 2.0)] * 2


def test_ranks_that_do_not_come_are_not_waited_for_for_ever(tmp_path):
    spec = RankSpec(0, 2, str(tmp_path / "store"), patience_s=0.3)
    with pytest.raises(WorkerUnavailableError, match="rank 0 of 2"):
        RankGroup(spec)


def test_only_loopback_listens(ranks):
    def work(group):
        group.all_agree(ok=True)
        found = listening_addresses()
        group.all_agree(ok=True)
        return found

    for found in ranks.run(2, work):
        assert found
        assert set(found) == {"0100007F"}  # 127.0.0.1 as the kernel writes it


def test_what_fails_on_one_rank_fails_on_all(ranks):
    def work(group):
        def load():
            with together(group):
                if group.rank == 1:
                    raise ModelError("of rank 1")

        with pytest.raises(ModelError) as caught:
            load()
        return str(caught.value)

    assert ranks.run(2, work) == ["another rank refuses the model", "of rank 1"]


def test_a_rank_alone_agrees_with_itself():
    with together(None):
        pass
    with pytest.raises(ValueError, match="mine"), together(None):
        raise ValueError("mine")


def test_strangers_are_not_taken_in_once_the_ranks_have_met(ranks):
    others = watched_for().keys()  # what earlier tests of this process left to the collector

    def work(group):
        group.all_agree(ok=True)  # everybody is through the forming
        seen = [events for fd, events in watched_for().items() if fd not in others]
        group.all_agree(ok=True)
        return seen

    for seen in ranks.run(2, work):
        assert len(seen) >= 2
        assert set(seen) == {0}
