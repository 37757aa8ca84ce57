"""Where no drafts come the verifier drafts from a sequence's own tokens, and changes none."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.integration.cluster import cluster, until_status, until_up
from tests.integration.conftest import gather

LOOP = [7, 8, 9, 10, 11]
PROMPTS = [LOOP * 6, [5, 6, *LOOP, 5, 6], list(range(20, 60)), [9] * 12]
"""Some repeat themselves; some drafts begin in the prompt and end in the output."""
NUM_TOKENS = 60
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 5}


def with_fallback(fallback, **options):
    return lambda config: replace(config, fallback=fallback, **options)


async def run_all(client, **options):
    results = await gather(
        *(
            client.generate(prompt, max_tokens=NUM_TOKENS, ignore_eos=True, **options)
            for prompt in PROMPTS
        )
    )
    return [(r.token_ids, r.text, r.finish_reason) for r in results]


async def answers(target_dir, fallback, *, coordinator=None, num_blocks=256, **options):
    """Outputs without any drafter, and the counters after them."""
    change = with_fallback(fallback, **(coordinator or {}))
    async with cluster(target_dir, mode=(1, 8, 4), coordinator=change, num_blocks=num_blocks) as c:
        outputs = await run_all(c.client, **options)
        status = await until_status(c.client, lambda s: s.is_idle and s.num_blocks_used == 0)
        return outputs, status.counters


@pytest.mark.parametrize("options", [{"temperature": 0}, SEEDED], ids=["greedy", "seeded"])
async def test_outputs_are_the_same_with_and_without(target_dir, options):
    few = {**options, "allowed_token_ids": [7, 8, 9]}  # so that outputs repeat
    expected, without = await answers(target_dir, "none", **few)
    outputs, counters = await answers(target_dir, "ngram", **few)
    assert outputs == expected
    assert (without.num_ngram_tokens, counters.num_draft_tokens) == (0, 0)
    assert 0 < counters.num_accepted_ngram_tokens <= counters.num_ngram_tokens
    assert counters.num_steps < without.num_steps


async def test_a_stop_string_ends_an_output_at_the_same_character(target_dir):
    (expected, *_), _ = await answers(target_dir, "none", temperature=0)
    stop = expected[1][4:6]
    assert stop
    cut, _ = await answers(target_dir, "none", temperature=0, stop=[stop])
    outputs, _ = await answers(target_dir, "ngram", temperature=0, stop=[stop])
    assert outputs == cut
    assert cut[0][2] != expected[2]


async def test_preempted_requests_go_on_with_the_same_tokens(target_dir, plain_greedy):
    outputs, counters = await answers(target_dir, "ngram", num_blocks=24, temperature=0)
    assert [tokens for tokens, _, _ in outputs] == [plain_greedy(p, NUM_TOKENS) for p in PROMPTS]
    assert counters.num_preemptions > 0
    assert counters.num_ngram_tokens > 0


async def test_a_drafter_that_goes_is_made_up_for_until_it_returns(target_dir, plain_greedy):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    async with cluster(target_dir, target_dir, kind="oracle", link="grpc") as c:

        async def tokens():
            return [found for found, _, _ in await run_all(c.client, temperature=0)]

        assert await tokens() == expected
        assert (await c.client.status()).counters.num_ngram_tokens == 0
        running = asyncio.create_task(tokens())
        await c.drafters[0].stop()
        assert await running == expected
        assert await tokens() == expected
        gone = (await c.client.status()).counters
        assert gone.num_ngram_tokens > 0
        c.drafters[0] = c.drafters[0].again()
        await c.drafters[0].start()
        await until_up(c.client, with_drafter=True)
        assert await tokens() == expected
        assert (await c.client.status()).counters.num_draft_tokens > gone.num_draft_tokens


async def test_a_verifier_that_returns_drafts_from_what_it_is_told(target_dir, plain_greedy):
    async with cluster(target_dir, mode=(1, 8, 4), link="grpc") as c:
        running = asyncio.create_task(run_all(c.client, temperature=0))
        await until_status(c.client, lambda s: s.counters.num_output_tokens > 20)
        await c.verifier.stop()
        c.verifier = c.verifier.again()
        await c.verifier.start()
        outputs = [found for found, _, _ in await running]
        assert outputs == [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]


async def test_rejection_keeps_greedy_outputs_and_ends(target_dir, plain_greedy):
    async with cluster(target_dir, mode=(1, 8, 4), acceptance="rejection") as c:
        outputs = [found for found, _, _ in await run_all(c.client, temperature=0)]
        assert outputs == [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
        assert all(len(found) == NUM_TOKENS for found, _, _ in await run_all(c.client, **SEEDED))


async def test_plain_decoding_that_was_asked_for_is_plain(target_dir):
    async with cluster(target_dir, mode=(1, 8, 0)) as c:
        await run_all(c.client, temperature=0)
        assert (await c.client.status()).counters.num_ngram_tokens == 0
