"""Every policy writes what plain decoding writes, whatever k, batches and drafters there are."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from minedraft.errors import InvalidRequestError
from minedraft.policy_options import PolicyOptions
from minedraft.services.coordinator.core.policy import POLICIES
from tests.integration.cluster import cluster, until_status
from tests.integration.conftest import gather

PROMPTS = [list(range(5, 6 + 3 * i)) for i in range(6)]
NUM_TOKENS = 16
GREEDY = {"temperature": 0}
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 5}


def with_options(config):
    schedule = '{"1-2": 5, "3-3": 0, "4-64": 2}'
    options = PolicyOptions(
        num_speculative_tokens_per_batch_size=schedule, tetris_extra_proposals=2
    )
    return replace(config, policies=options)


async def run_all(client, options):
    results = await gather(
        *(
            client.generate(prompt, max_tokens=NUM_TOKENS, ignore_eos=True, **options)
            for prompt in PROMPTS
        )
    )
    return [result.token_ids for result in results]


async def set_policy(client, policy, *, num_batches=2, k=4):
    await client.set_mode(
        num_batches=num_batches, max_batch_size=4, num_draft_tokens=k, policy=policy
    )


@pytest.mark.parametrize("num_drafters", [1, 2])
@pytest.mark.timeout(120)
async def test_every_policy_writes_what_plain_decoding_writes(
    target_dir, draft_dir, plain_greedy, num_drafters
):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    async with cluster(
        target_dir, draft_dir, num_drafters=num_drafters, coordinator=with_options
    ) as c:
        await set_policy(c.client, "fixed", k=0)
        expected = [expected, await run_all(c.client, SAMPLED)]
        for policy in POLICIES:
            for num_batches in (1, 2, 3):
                for k in (1, 4):
                    await set_policy(c.client, policy, num_batches=num_batches, k=k)
                    both = (run_all(c.client, options) for options in (GREEDY, SAMPLED))
                    assert await gather(*both) == expected, (policy, num_batches, k)
            status = await until_status(c.client, lambda s: s.is_idle and s.num_blocks_used == 0)
            assert status.policy.name == status.mode.policy == policy
            assert policy == "fixed" or "scores" not in status.policy.note
        assert status.counters.num_accepted_tokens > 0


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.timeout(60)
async def test_policies_change_under_load(target_dir, draft_dir, options):
    rng = random.Random(3)
    async with cluster(target_dir, draft_dir, coordinator=with_options) as c:
        await set_policy(c.client, "fixed", k=0)
        expected = await run_all(c.client, options)

        async def flip():
            while True:
                before = (await c.client.status()).counters.num_steps
                await set_policy(
                    c.client,
                    rng.choice(sorted(POLICIES)),
                    num_batches=rng.randint(1, 3),
                    k=rng.choice((0, 2, 4)),
                )
                due = before + rng.randint(1, 4)
                await until_status(
                    c.client, lambda s, due=due: s.counters.num_steps >= due or s.is_idle
                )
                await asyncio.sleep(0)

        flipping = asyncio.create_task(flip())
        try:
            for _ in range(3):
                assert await run_all(c.client, options) == expected
        finally:
            flipping.cancel()
            await asyncio.wait((flipping,))
        status = await until_status(c.client, lambda s: s.is_idle and s.num_blocks_used == 0)
    assert status.counters.num_draft_tokens > 0


async def test_a_policy_that_chooses_by_score_is_refused_under_rejection_by_name(
    target_dir, draft_dir
):
    async with cluster(target_dir, draft_dir, acceptance="rejection") as c:
        await set_policy(c.client, "goodput")
        for policy in ("wcs", "dspark", "adaspec", "tetris"):
            with pytest.raises(InvalidRequestError, match=f"policy='{policy}'.*rejection"):
                await set_policy(c.client, policy)
        assert (await c.client.status()).policy.name == "goodput"
