"""A verifier of several ranks, real processes: same output, one life, one death."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from minedraft.errors import ModelError, WorkerUnavailableError
from minedraft.services.verifier.app import run as run_verifier
from minedraft.services.verifier.config import VerifierConfig
from tests.integration.cluster import LOOPBACK, Service, cluster
from tests.integration.conftest import gather
from tests.integration.test_exactness import MIXED, drained, run_all
from tests.tiny_models import make_tiny_llama

pytestmark = [
    pytest.mark.multiproc,
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("warm_processes"),
]

NUM_TOKENS = 24


def ranks_of(pid):
    """Processes of the ranks that a process started."""
    found = []
    for directory in Path("/proc").iterdir():
        try:
            command = (directory / "cmdline").read_bytes()
            name = (directory / "comm").read_text()
            parent = (directory / "stat").read_text().rpartition(")")[2].split()[1]
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            continue
        is_cold = b"-m\0minedraft.services.verifier.rank_worker\0" in command
        if (is_cold or name == "rank_worker\n") and parent == str(pid):
            found.append(int(directory.name))
    return sorted(found)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def config(model, **options):
    return VerifierConfig(
        model=str(model),
        **{"listen": LOOPBACK, "num_blocks": 64, "grace_s": 0.1, "tp_size": 2, **options},
    )


async def gone(pids):
    while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110 the kernel tells nobody
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("tp_size", [2, 4])
async def test_greedy_output_is_plain_decodings(tp_size, target_dir, draft_dir, plain_greedy):
    prompts = MIXED[::2] if tp_size == 2 else MIXED[::6]
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in prompts]
    async with cluster(
        target_dir, draft_dir, mode=(2, 3, 3), verifier_options={"tp_size": tp_size}
    ) as c:
        assert len(ranks_of(os.getpid())) == tp_size - 1
        results = await run_all(c.client, prompts, temperature=0)
        assert [r.token_ids for r in results] == expected
        if tp_size == 2:
            # No drafts at all, and drafts of one batch in turns: chunks, verify steps, rollbacks.
            for num_batches, k in ((1, 0), (1, 7)):
                await c.client.set_mode(
                    num_batches=num_batches, max_batch_size=5, num_draft_tokens=k
                )
                results = await run_all(c.client, prompts, temperature=0)
                assert [r.token_ids for r in results] == expected
        await drained(c.client)
    assert ranks_of(os.getpid()) == []


async def test_near_ties_never_leave_a_rank_waiting(tmp_path, draft_dir):
    """The decision is rank 0's alone, so ranks cannot disagree about it."""
    target = make_tiny_llama(tmp_path / "ties")
    weights = load_file(target / "model.safetensors")
    head = weights["lm_head.weight"]
    # Pairs of tokens that differ by rounding only.
    head[1::2] = head[0::2] + torch.randn(head[1::2].shape) * 1e-7
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    async with cluster(target, draft_dir, mode=(2, 5, 3), verifier_options={"tp_size": 2}) as c:
        results = await gather(
            run_all(c.client, MIXED[:5], temperature=0),
            run_all(c.client, MIXED[:5], temperature=1.0),
        )
        assert all(len(r.token_ids) == NUM_TOKENS for batch in results for r in batch)
        counters = (await drained(c.client)).counters
        assert 0 <= counters.num_accepted_tokens <= counters.num_draft_tokens


async def test_a_killed_rank_ends_the_verifier_which_returns_as_one(
    target_dir, draft_dir, plain_greedy
):
    prompts = MIXED[:3]
    expected = [plain_greedy(prompt, 60) for prompt in prompts]
    async with cluster(target_dir, draft_dir, mode=(2, 4, 3), verifier_options={"tp_size": 2}) as c:
        streaming = [asyncio.Event() for _ in prompts]

        async def stream(prompt, began):
            tokens = []
            async for event in c.client.stream(
                prompt, temperature=0, max_tokens=60, ignore_eos=True
            ):
                tokens += event.token_ids
                if tokens:
                    began.set()
            return tuple(tokens)

        tasks = [
            asyncio.create_task(stream(prompt, began))
            for prompt, began in zip(prompts, streaming, strict=True)
        ]
        for began in streaming:
            await began.wait()
        (rank,) = ranks_of(os.getpid())
        killed = time.monotonic()
        os.kill(rank, signal.SIGKILL)
        with pytest.raises(ExceptionGroup) as caught:
            await c.verifier._task
        assert time.monotonic() - killed < 2
        assert caught.group_contains(WorkerUnavailableError, match="rank 1 of 2 was killed by sig")
        assert ranks_of(os.getpid()) == []
        c.verifier = c.verifier.again()
        await c.verifier.start()
        assert [await task for task in tasks] == expected


async def test_an_idle_verifier_notices_a_killed_rank(target_dir):
    service = Service(run_verifier, config(target_dir, tp_size=3, cpus=""))
    with pytest.raises(ModelError, match="tp_size=3"):
        await service.start()  # 4 heads
    service = Service(run_verifier, config(target_dir, tp_size=2))
    await service.start()
    (rank,) = ranks_of(os.getpid())
    killed = time.monotonic()
    os.kill(rank, signal.SIGKILL)
    with pytest.raises(ExceptionGroup):
        await service._task
    assert time.monotonic() - killed < 2


async def test_a_rank_that_hangs_ends_the_verifier_after_the_timeout(target_dir):
    options = {"tp_size": 2, "tp_timeout_s": 1.0}
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
        async with cluster(target_dir, mode=(1, 2, 0), verifier_options=options) as c:
            (rank,) = ranks_of(os.getpid())
            os.kill(rank, signal.SIGSTOP)
            request = asyncio.create_task(c.client.generate([5, 6], max_tokens=400))
            stopped = time.monotonic()
            try:
                await c.verifier._task
            finally:
                assert 0.9 < time.monotonic() - stopped < 5
                assert ranks_of(os.getpid()) == []
                request.cancel()
    assert caught.group_contains(WorkerUnavailableError, match="did nothing for 1 s")


async def start_process(model, tmp_path):
    """`minedraft verifier --tp-size 2` as a process; returns it and its ranks."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "minedraft.services.verifier", f"--model={model}", "--tp-size=2"),
            *("--listen=127.0.0.1:0", "--num-blocks=16", f"--parent-fd={theirs.fileno()}"),
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        theirs.close()
        assert await asyncio.get_running_loop().sock_recv(ours, 64)
        ranks = ranks_of(process.pid)
        assert len(ranks) == 1
        yield process, ranks


@pytest.mark.parametrize(
    ("signum", "code", "said"),
    [(signal.SIGTERM, 0, b""), (signal.SIGKILL, -9, b"")],
)
async def test_ranks_end_with_the_verifier(signum, code, said, target_dir, tmp_path):
    async for process, ranks in start_process(target_dir, tmp_path):
        process.send_signal(signum)
        errors = await process.stderr.read()
        assert await process.wait() == code
        await gone(ranks)
        assert b"terminate called" not in errors
        assert b"Traceback" not in errors
        assert not list(tmp_path.glob("minedraft-ranks-*"))


async def test_a_killed_rank_is_one_line_and_an_exit_code(target_dir, tmp_path):
    async for process, (rank,) in start_process(target_dir, tmp_path):
        os.kill(rank, signal.SIGTERM)  # ignored: a unit is stopped through rank 0
        os.kill(rank, signal.SIGKILL)
        killed = time.monotonic()
        errors = await process.stderr.read()
        assert await process.wait() == 1
        assert time.monotonic() - killed < 2
        assert b"error: rank 1 of 2 was killed by signal 9" in errors
        assert b"Traceback" not in errors
