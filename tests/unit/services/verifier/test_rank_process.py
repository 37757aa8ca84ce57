from __future__ import annotations

import os

import pytest

from minedraft.errors import WorkerUnavailableError
from minedraft.services.verifier import rank_process
from minedraft.services.verifier.rank_process import RankOrder, RankProcess

pytestmark = pytest.mark.multiproc


def order(**changes):
    values = {
        "rank": 1,
        "size": 2,
        "parent_pid": os.getpid(),
        "store": "/nowhere/store",
        "model": "/nowhere",
        "dtype": "float32",
        "kernels": "auto",
        "num_blocks": 4,
        "block_size": 8,
        "device": "cpu",
        "cores": (0,),
        "threads": 1,
        "timeout_s": 3.5,
    }
    return RankOrder(**(values | changes))


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Starts a rank whose code is the test's own."""

    async def start(code):
        (tmp_path / "stand_in.py").write_text(code)
        monkeypatch.setattr(rank_process, "MODULE", "stand_in")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return await RankProcess.start(order())

    return start


@pytest.mark.parametrize("cores", [None, (0,), (1, 3)])
def test_an_order_survives_the_command_line(cores):
    assert RankOrder.from_json(order(cores=cores).to_json()) == order(cores=cores)


async def test_a_rank_is_up_when_it_says_so_and_its_end_has_a_code(child):
    rank = await child("print('noise'); print('up', flush=True); input()")  # stdin is empty
    await rank.up()
    assert await rank.ended() == 1


async def test_a_rank_that_ends_before_it_is_up_is_not_waited_for(child):
    rank = await child("raise SystemExit(3)")
    await rank.up()
    with pytest.raises(WorkerUnavailableError, match=r"rank 1 of 2 ended with exit code 3$"):
        await rank.died()


async def test_why_a_rank_ended_is_told(child):
    rank = await child("print('up'); print('no such model'); raise SystemExit(1)")
    with pytest.raises(WorkerUnavailableError, match="exit code 1: no such model"):
        await rank.died()


async def test_a_rank_that_says_too_much_is_still_heard(child):
    rank = await child("print('x' * 100_000, end=''); print(); print('why'); raise SystemExit(1)")
    with pytest.raises(WorkerUnavailableError, match="exit code 1: why"):
        await rank.died()


async def test_a_killed_rank_is_told_by_signal(child):
    rank = await child("import signal; print('up', flush=True); signal.pause()")
    await rank.up()
    rank.kill()
    with pytest.raises(WorkerUnavailableError, match="killed by signal 9"):
        await rank.died()
    rank.kill()  # harmless


async def test_a_rank_has_a_session_and_threads_of_its_own(child):
    code = "import os; print(os.getsid(0) == os.getpid(), os.environ['OMP_NUM_THREADS'])"
    rank = await child(code)
    assert await rank.ended() == 0
    assert rank._said == ["True 1"]
