"""kill -9 and SIGSTOP of a worker during trial steps, among real processes."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from benchmarks.fleet import Fleet, is_up, until
from minedraft.client import Client, RetryPolicy

pytestmark = [pytest.mark.multiproc, pytest.mark.slow, pytest.mark.timeout(120)]

PROMPT = list(range(5, 17))
GREEDY = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
# Sizes up to 64 requests with 7 drafts each: trials take a second or two of a tiny model.
COORDINATOR = (
    "--num-batches=2", "--max-batch-size=32", "--num-draft-tokens=7", "--link=gloo", "--trial-s=10",
)  # fmt: skip


@asynccontextmanager
async def measuring(target, draft, directory, *, until_kind=""):
    """A fleet in the middle of its trials, of verify steps or, with `draft`, of draft steps."""
    fleet = Fleet(
        target,
        draft,
        directory,
        workers=("--num-blocks=600", "--block-size=8", "--grace-s=0.2"),
        coordinator=(*COORDINATOR, "--reconnect-s=0.05", "--step-timeout-s=5"),
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(fleet)
        patient = RetryPolicy(first_delay_s=0.02, max_delay_s=0.2)
        client = await stack.enter_async_context(await Client.connect(fleet.address, retry=patient))
        num_over = {"": 2, "draft": 30}[until_kind]
        status = await until(client, lambda status: status.costs.num_trials_over >= num_over)
        assert status.costs.is_measuring, "they were over before they could be disturbed"
        yield fleet, client


async def settled(client, plain_greedy):
    """Everything is up again, was measured or given up, serves what it should, and is clean."""
    status = await until(client, lambda s: is_up(s) and not s.costs.is_measuring)
    answer = await client.generate(PROMPT, **GREEDY)
    assert answer.token_ids == plain_greedy(PROMPT, 24)
    status = await until(client, lambda s: is_up(s) and s.is_idle and s.num_blocks_used == 0)
    assert status.counters.num_requests == 1
    assert status.counters.num_finished == {"length": 1}
    assert status.counters.num_stale_results == 0
    return status.costs


@pytest.mark.parametrize("kind", ["", "draft"])
@pytest.mark.parametrize("role", ["verifier", "drafter"])
async def test_a_worker_that_is_killed_in_trials_is_measured_when_it_is_back(
    role, kind, target_dir, draft_dir, tmp_path, plain_greedy, warm_processes
):
    async with measuring(target_dir, draft_dir, tmp_path, until_kind=kind) as (fleet, client):
        await fleet.services[role].kill()
        await fleet.services[role].start()
        costs = await settled(client, plain_greedy)
        assert (costs.target, costs.draft) == ("trials", "trials")


async def test_a_verifier_that_stands_still_in_a_trial_is_left_and_comes_back(
    target_dir, draft_dir, tmp_path, plain_greedy, warm_processes
):
    """A trial step is owed like any other."""
    async with measuring(target_dir, draft_dir, tmp_path) as (fleet, client):
        fleet.services["verifier"].signal(signal.SIGSTOP)
        try:
            await until(client, lambda status: not is_up(status))
        finally:
            fleet.services["verifier"].signal(signal.SIGCONT)
        await settled(client, plain_greedy)


async def test_a_drafter_that_stands_still_in_a_trial_holds_up_no_request(
    target_dir, draft_dir, tmp_path, plain_greedy, warm_processes
):
    async with measuring(target_dir, draft_dir, tmp_path, until_kind="draft") as (fleet, client):
        fleet.services["drafter"].signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(10):
                answer = await client.generate(PROMPT, **GREEDY)
            assert answer.token_ids == plain_greedy(PROMPT, 24)
        finally:
            fleet.services["drafter"].signal(signal.SIGCONT)
        await until(
            client,
            lambda s: (
                is_up(s) and s.is_idle and s.num_blocks_used == 0 and not s.costs.is_measuring
            ),
        )
