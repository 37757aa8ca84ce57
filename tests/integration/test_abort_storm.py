"""200 requests, aborted at random in every phase: blocks return to zero, nobody else notices."""

from __future__ import annotations

import asyncio
import random

import pytest

from minedraft.types import FinishReason
from tests.integration.cluster import cluster, until_status

NUM_REQUESTS = 200


@pytest.mark.parametrize("mode", [(1, 6, 3), (2, 6, 3)])
@pytest.mark.timeout(60)
async def test_an_abort_storm_leaves_nothing_behind(mode, target_dir, draft_dir, plain_greedy):
    rng = random.Random(sum(mode))
    prompts = [[5 + rng.randrange(90) for _ in range(rng.randrange(1, 30))] for _ in range(6)]

    async def one(client, index) -> bool:
        """Run a request, perhaps abort it after a few deltas; True if it ran to its end."""
        prompt = prompts[index % len(prompts)]
        patience = rng.choice((0, 1, 2, 5, None, None))
        stream = client.stream(
            prompt, temperature=0, max_tokens=16, ignore_eos=True, request_id=f"r{index}"
        )
        tokens: list[int] = []
        num_deltas = 0
        iterator = aiter(stream)
        async for delta in iterator:
            tokens += delta.token_ids
            num_deltas += 1
            if patience is not None and num_deltas > patience:
                if rng.random() < 0.5:
                    await client.abort(f"r{index}")
                else:
                    await iterator.aclose()
                    break
        expected = plain_greedy(prompt, 16)
        assert tuple(tokens) == expected[: len(tokens)]
        if patience is None:
            assert stream.completion.finish_reason is FinishReason.LENGTH
            assert len(tokens) == 16
        return patience is None

    async with cluster(target_dir, draft_dir, mode=mode, num_blocks=60) as c:
        # Some are aborted while they wait, before they have any delta.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(c.client, i)) for i in range(NUM_REQUESTS)]
            early = group.create_task(
                c.client.abort(*(f"r{i}" for i in range(NUM_REQUESTS, NUM_REQUESTS + 20)))
            )
        assert early.result() == 0
        assert 0 < sum(task.result() for task in tasks) < NUM_REQUESTS
        status = await until_status(c.client, lambda status: status.is_idle)
        assert status.num_blocks_used == 0
        assert all(not batch.num_by_phase for batch in status.batches)
        assert sum(status.counters.num_finished.values()) == NUM_REQUESTS
