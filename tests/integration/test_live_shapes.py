"""Batches change while requests run, at random moments: the outputs are those of plain decoding."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from minedraft.model.kernels.c.maker import CKernels
from minedraft.services.coordinator.core.shaper import Shaper
from minedraft.services.coordinator.core.shapes import Shape
from tests.integration.cluster import cluster, until_status
from tests.integration.conftest import gather

PROMPTS = [list(range(5, 6 + 4 * i)) for i in range(12)]
NUM_TOKENS = 48
GREEDY = {"temperature": 0}
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 5}


async def load(client, options):
    results = await gather(
        *(
            client.generate(prompt, max_tokens=NUM_TOKENS, ignore_eos=True, **options)
            for prompt in PROMPTS
        )
    )
    return [result.token_ids for result in results]


@pytest.fixture(scope="module")
def greedy(plain_greedy):
    return [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]


async def plain(target_dir, options):
    async with cluster(target_dir, mode=(1, 12, 0)) as c:
        return await load(c.client, options)


async def flip(client, rng, *, sizes=(2, 4, 6, 12)):
    """Set another mode every few steps, until cancelled."""
    while True:
        before = (await client.status()).counters.num_steps
        await client.set_mode(
            num_batches=rng.randint(1, 3),
            max_batch_size=rng.choice(sizes),
            num_draft_tokens=rng.choice((0, 2, 4)),
        )
        due = before + rng.randint(1, 4)
        await until_status(client, lambda s, due=due: s.counters.num_steps >= due or s.is_idle)
        await asyncio.sleep(0)


@pytest.fixture
def flipped(monkeypatch):
    """The coordinator takes a shape by chance, at one in five of its sync points."""
    rng, taken = random.Random(11), Counter()

    def look(shaper, num_requests, num_drafters, load, *, has_spare):
        if shaper.mode.shape != "auto" or not num_requests or rng.random() < 0.8:
            return False
        shape = Shape(rng.randint(1, 3), rng.choice((0, shaper.mode.num_draft_tokens)))
        taken[shape] += 1
        shaper.switch(shape)
        return True

    monkeypatch.setattr(Shaper, "look", look)
    return taken


def auto(config):
    return replace(config, shape="auto")


async def load_while_modes_change(c, options, seed):
    flipping = asyncio.create_task(flip(c.client, random.Random(seed)))
    try:
        return await load(c.client, options)
    finally:
        flipping.cancel()
        await asyncio.wait((flipping,))


@pytest.mark.parametrize("num_drafters", [1, 2])
@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
async def test_modes_change_under_load(target_dir, draft_dir, greedy, options, num_drafters):
    expected = greedy if options is GREEDY else await plain(target_dir, options)
    async with cluster(target_dir, draft_dir, num_drafters=num_drafters) as c:
        assert await load_while_modes_change(c, options, num_drafters) == expected
        status = await until_status(c.client, lambda s: s.is_idle and s.num_blocks_used == 0)
    assert status.counters.num_draft_tokens > 0


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
async def test_modes_change_while_a_small_pool_preempts(target_dir, draft_dir, greedy, options):
    expected = greedy if options is GREEDY else await plain(target_dir, options)
    async with cluster(target_dir, draft_dir, num_blocks=24) as c:
        assert await load_while_modes_change(c, options, 7) == expected
        status = await until_status(c.client, lambda s: s.is_idle and s.num_blocks_used == 0)
    assert status.counters.num_preemptions > 0


async def test_modes_change_while_a_drafter_is_killed_and_returns(target_dir, draft_dir, greedy):
    async with cluster(target_dir, draft_dir, num_drafters=2, link="grpc") as c:
        running = asyncio.create_task(load_while_modes_change(c, GREEDY, 3))
        await until_status(c.client, lambda s: s.counters.num_output_tokens >= 60)
        await c.drafters[0].kill()
        returned = c.drafters[0].again()
        await until_status(c.client, lambda s: s.counters.num_output_tokens >= 200)
        await returned.start()
        c.drafters[0] = returned
        assert await running == greedy


@pytest.mark.parametrize(("num_drafters", "prefix_cache"), [(1, True), (2, True), (2, False)])
@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
async def test_the_shape_changes_at_random_sync_points(
    target_dir, draft_dir, greedy, options, num_drafters, prefix_cache, flipped
):
    expected = greedy if options is GREEDY else await plain(target_dir, options)
    async with cluster(
        target_dir,
        draft_dir,
        num_drafters=num_drafters,
        mode=(2, 6, 4),
        coordinator=lambda config: replace(auto(config), prefix_cache=prefix_cache),
    ) as c:
        assert await load(c.client, options) == expected
        status = await until_status(c.client, lambda s: s.is_idle and s.num_blocks_used == 0)
    assert set(flipped) == {Shape(a, k) for a in (1, 2, 3) for k in (0, 4)}
    assert status.counters.num_moves > 0


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
async def test_the_shape_changes_while_a_small_pool_preempts(
    target_dir, draft_dir, greedy, options, flipped
):
    expected = greedy if options is GREEDY else await plain(target_dir, options)
    async with cluster(target_dir, draft_dir, num_blocks=24, mode=(2, 6, 4), coordinator=auto) as c:
        assert await load(c.client, options) == expected
        status = await until_status(c.client, lambda s: s.is_idle and s.num_blocks_used == 0)
    assert status.counters.num_preemptions > 0
    assert flipped


async def test_the_shape_changes_while_a_drafter_is_killed_and_returns(
    target_dir, draft_dir, greedy, flipped
):
    async with cluster(
        target_dir, draft_dir, num_drafters=2, link="grpc", mode=(2, 6, 4), coordinator=auto
    ) as c:
        running = asyncio.create_task(load(c.client, GREEDY))
        await until_status(c.client, lambda s: s.counters.num_output_tokens >= 60)
        await c.drafters[0].kill()
        returned = c.drafters[0].again()
        await until_status(c.client, lambda s: s.counters.num_output_tokens >= 200)
        await returned.start()
        c.drafters[0] = returned
        assert await running == greedy
    assert flipped


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a core to lend")
@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
async def test_the_drafters_core_is_lent_and_given_back_at_random(
    target_dir, draft_dir, greedy, options, monkeypatch
):
    expected = greedy if options is GREEDY else await plain(target_dir, options)
    rng, lent = random.Random(5), Counter()
    widen = CKernels.widen

    def look(shaper, num_requests, num_drafters, load, *, has_spare):
        if not num_requests or not has_spare or rng.random() < 0.7:
            return False
        shaper.switch(rng.choice((Shape(1, 0, is_wide=True), Shape(1, 0), Shape(2, 4))))
        return True

    def counted(kernels, *, is_wide):
        lent[is_wide] += 1
        widen(kernels, is_wide=is_wide)

    monkeypatch.setattr(Shaper, "look", look)
    monkeypatch.setattr(CKernels, "widen", counted)
    own, spare = sorted(os.sched_getaffinity(0))[:2]
    cores = {"cpus": str(own), "spare_cpus": str(spare), "kernels": "c"}
    async with cluster(
        target_dir, draft_dir, mode=(2, 6, 4), coordinator=auto, verifier_options=cores
    ) as c:
        assert await load(c.client, options) == expected
    assert min(lent[True], lent[False]) > 5


async def test_acceptance_is_there_at_once_when_speculation_returns(target_dir, monkeypatch):
    """The target drafts for itself, so drafts fail only where the drafter is behind."""
    at, shapes = [4], []

    def look(shaper, num_requests, num_drafters, load, *, has_spare):
        if shaper.shape.num_draft_tokens == at[0] or not num_drafters:
            return False
        shapes.append(at[0])
        shaper.switch(Shape(2, at[0]))
        return True

    async def steps(client, count):
        start = (await client.status()).counters
        done = await until_status(client, lambda s: s.counters.num_steps >= start.num_steps + count)
        return start, done.counters

    monkeypatch.setattr(Shaper, "look", look)
    async with cluster(target_dir, target_dir, mode=(2, 4, 4), coordinator=auto) as c:
        running = asyncio.create_task(
            gather(
                *(
                    c.client.generate(prompt, max_tokens=300, ignore_eos=True, temperature=0)
                    for prompt in PROMPTS[:8]
                )
            )
        )
        await steps(c.client, 20)
        at[0] = 0
        await steps(c.client, 80)
        at[0] = 4
        start, _ = await steps(c.client, 1)
        _, done = await steps(c.client, 10)  # five of each batch
        assert not running.done()
        running.cancel()
        await asyncio.wait((running,))
    assert shapes == [0, 4]
    num_drafts = done.num_draft_tokens - start.num_draft_tokens
    assert done.num_accepted_tokens - start.num_accepted_tokens >= 0.95 * num_drafts > 0
    assert done.num_stale_drafts == start.num_stale_drafts
