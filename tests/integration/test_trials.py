"""Trial steps on real services with tiny models: what they leave, and who interrupts them."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace

import pytest

from minedraft.admin import Counters
from tests.integration.cluster import cluster, until_status

PROMPT = list(range(5, 17))
GREEDY = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}


def measuring(directory=""):
    """Settings of a coordinator that has trial steps, and perhaps keeps what it learns."""
    return lambda config: replace(config, trial_s=10.0, cost_cache=str(directory))


def is_over(status) -> bool:
    return status.costs.num_trials > 0 and not status.costs.is_measuring


def is_clean(status) -> bool:
    """Nothing on the workers: the drafter tells its blocks once a second."""
    usages = [worker.usage for worker in status.workers if worker.usage is not None]
    return status.num_blocks_used == 0 and all(usage.num_blocks_used == 0 for usage in usages)


async def test_idle_services_are_measured_and_nothing_is_left(target_dir, draft_dir, plain_greedy):
    async with cluster(target_dir, draft_dir, coordinator=measuring()) as c:
        status = await until_status(c.client, is_over)
        assert (status.costs.target, status.costs.draft) == ("trials", "trials")
        assert 0 < status.costs.trial_ns < 10e9
        assert status.counters == Counters()
        assert await c.client.timeline() == ()
        await until_status(c.client, is_clean)
        answer = await c.client.generate(PROMPT, **GREEDY)
        assert answer.token_ids == plain_greedy(PROMPT, 24)
        assert answer.speculation.num_drafts > 0
        await until_status(c.client, is_clean)


@pytest.mark.parametrize("num_over", [0, 1, 20])
async def test_requests_that_interrupt_trials_get_what_they_would_have_got(
    target_dir, draft_dir, plain_greedy, num_over
):
    async with cluster(target_dir, draft_dir, coordinator=measuring()) as c:
        await until_status(c.client, lambda status: status.costs.num_trials_over >= num_over)
        prompts = [PROMPT[: 3 + i] for i in range(6)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(c.client.generate(each, **GREEDY)) for each in prompts]
        for prompt, task in zip(prompts, tasks, strict=True):
            assert task.result().token_ids == plain_greedy(prompt, 24)
        status = await until_status(c.client, is_clean)
        assert status.costs.target in {"live", "trials"}
        assert not status.costs.is_measuring
        assert status.counters.num_requests == 6
        assert status.counters.num_stale_results == 0


async def test_a_swap_goes_through_trials_and_the_new_drafter_is_measured(
    target_dir, draft_dir, tmp_path, plain_greedy
):
    """The drafter's model root is the directory that its model is in."""
    shutil.copytree(draft_dir, tmp_path / "old")
    shutil.copytree(target_dir, tmp_path / "new")
    async with cluster(target_dir, tmp_path / "old", coordinator=measuring()) as c:
        await until_status(c.client, lambda status: status.costs.num_trials_over >= 2)
        await c.client.swap_drafter(model=str(tmp_path / "new"))
        status = await until_status(
            c.client, lambda status: is_over(status) and status.costs.draft == "trials"
        )
        drafter = next(worker for worker in status.workers if worker.role == "drafter")
        assert drafter.model.name == "new"
        answer = await c.client.generate(PROMPT, **GREEDY)
        assert answer.token_ids == plain_greedy(PROMPT, 24)
        await until_status(c.client, is_clean)


async def test_one_run_begins_with_the_costs_of_the_last_one(target_dir, draft_dir, tmp_path):
    options = {"coordinator": measuring(tmp_path)}
    async with cluster(target_dir, draft_dir, **options) as c:
        await until_status(c.client, is_over)
    (path,) = tmp_path.iterdir()
    async with cluster(target_dir, draft_dir, **options) as c:
        status = await until_status(c.client, lambda status: status.costs.draft)
        assert (status.costs.target, status.costs.draft) == ("cache", "cache")
        assert status.costs.num_trials == 0
    path.write_text(path.read_text()[:-100])
    async with cluster(target_dir, draft_dir, **options) as c:
        status = await until_status(c.client, is_over)
        assert (status.costs.target, status.costs.draft) == ("trials", "trials"), "anew"


async def test_the_same_target_with_other_kernels_is_measured_anew(target_dir, tmp_path):
    for num_files, kernels in ((1, "torch"), (2, "c")):
        async with cluster(
            target_dir, coordinator=measuring(tmp_path), verifier_options={"kernels": kernels}
        ) as c:
            status = await until_status(c.client, is_over)
            assert status.costs.target == "trials"
        assert len(list(tmp_path.iterdir())) == num_files
