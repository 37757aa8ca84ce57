"""What requests have in common is computed once, and no output tells whether it was."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace

import pytest
from safetensors.torch import load_file, save_file

from minedraft.errors import NonFiniteError
from tests.integration.cluster import cluster, until_status, until_up
from tests.integration.conftest import gather

BLOCK = 8
SHARED = [20 + 7 * i % 200 for i in range(6 * BLOCK)]
EDGES = [SHARED[: length + cut] for length in (BLOCK, 2 * BLOCK) for cut in (-1, 0, 1)]
"""One less than whole blocks, whole blocks, one more."""
FORKED = [[*SHARED[: 3 * BLOCK], 250 + i, *SHARED[:5]] for i in range(3)]
PROMPTS = [*EDGES, SHARED, *FORKED]
NUM_TOKENS = 20
BAD = 33
GREEDY = {"temperature": 0}
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 5}


def without(config):
    return replace(config, prefix_cache=False)


def in_small_chunks(config):
    return replace(config, prefill_budget_tokens=2 * BLOCK)


async def ask(client, prompt, **options):
    options = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "logprobs": 2, **options}
    return await client.generate(prompt, **options)


async def load(client, **options):
    """Every prompt twice at once."""
    return await gather(*(ask(client, prompt, **options) for prompt in PROMPTS * 2))


def bits(results):
    """Tokens, and the probabilities that they were drawn from."""
    return [[(c.token_ids, c.logprobs) for c in result.choices] for result in results]


async def idle(client):
    return await until_status(client, lambda s: s.is_idle and s.num_blocks_used == 0)


@pytest.fixture(scope="module")
def expected(target_dir):
    """Without any cache, one after the other, without drafts."""
    found = {}

    async def decode(name, options):
        if name not in found:
            async with cluster(target_dir, mode=(1, 4, 0), coordinator=without) as c:
                found[name] = bits([await ask(c.client, prompt, **options) for prompt in PROMPTS])
                status = await idle(c.client)
                assert status.num_blocks_cached == status.counters.num_prefix_hits == 0
        return found[name] * 2

    return decode


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("draft", [False, True], ids=["k0", "k3"])
@pytest.mark.timeout(60)
async def test_bits_do_not_depend_on_the_cache(target_dir, draft_dir, expected, options, draft):
    want = await expected(options["temperature"], options)
    async with cluster(target_dir, draft_dir if draft else None) as c:
        for _ in range(2):
            assert bits(await load(c.client, **options)) == want
        status = await idle(c.client)
        assert status.counters.num_prefix_hits > len(PROMPTS)
        assert status.num_blocks_cached > 0


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.timeout(60)
async def test_bits_do_not_depend_on_preemption_and_eviction(
    target_dir, draft_dir, expected, options
):
    want = await expected(options["temperature"], options)
    small = {"num_blocks": 13, "coordinator": in_small_chunks}
    async with cluster(target_dir, draft_dir, **small) as c:
        while True:
            assert bits(await load(c.client, **options)) == want
            counters = (await idle(c.client)).counters
            if counters.num_preemptions and counters.num_evicted_blocks:
                break
        assert counters.num_prefix_hits > 0
        assert counters.num_peak_blocks <= min(counters.num_peak_blocks_for_all, 13)


async def test_a_prompt_of_any_length_is_found_up_to_its_last_token(target_dir):
    async with cluster(target_dir, mode=(1, 4, 0)) as c:
        for number, prompt in enumerate((*EDGES, SHARED)):
            salt = f"tenant {number}"
            first = await ask(c.client, prompt, cache_salt=salt, **GREEDY)
            again = await ask(c.client, prompt, cache_salt=salt, **GREEDY)
            assert first.usage.num_cached_tokens == 0
            assert again.usage.num_cached_tokens == (len(prompt) - 1) // BLOCK * BLOCK
            assert bits([again]) == bits([first])


async def test_output_is_found_as_the_beginning_of_a_longer_prompt(target_dir):
    async with cluster(target_dir, mode=(1, 4, 0)) as c:
        first = await ask(c.client, SHARED[:5])
        longer = await ask(c.client, [*SHARED[:5], *first.token_ids, 7])
        assert longer.usage.num_cached_tokens == (5 + NUM_TOKENS - 1) // BLOCK * BLOCK


async def test_tenants_with_other_salts_share_nothing(target_dir):
    async with cluster(target_dir, mode=(1, 4, 0)) as c:
        salts = ("", "a", "b", "a")
        answers = [await ask(c.client, SHARED, cache_salt=salt, **GREEDY) for salt in salts]
        assert [a.usage.num_cached_tokens for a in answers] == [0, 0, 0, len(SHARED) - BLOCK]
        assert len({a.token_ids for a in answers}) == 1


async def test_a_drafter_keeps_tenants_apart_too(target_dir, draft_dir):
    async with cluster(target_dir, draft_dir) as c:
        for salt in ("a", "b"):
            await ask(c.client, SHARED, cache_salt=salt)
        await ask(c.client, SHARED, cache_salt="b")
        status = await until_status(c.client, lambda s: _hits_of_drafter(s) > 0)
        assert _hits_of_drafter(status) == len(SHARED) - BLOCK


async def test_eight_samples_cost_one_prefill(target_dir, draft_dir):
    prompt = [20 + 7 * i % 211 for i in range(25 * BLOCK)]
    async with cluster(target_dir, draft_dir, coordinator=in_small_chunks) as c:
        answer = await ask(c.client, prompt, n=8, temperature=1.0, seed=3)
        counters = (await idle(c.client)).counters
        assert counters.num_preemptions == 0
        num_fed = 8 * len(prompt) - counters.num_prefix_hit_tokens
        assert num_fed <= 1.3 * len(prompt)
        assert answer.usage.num_cached_tokens == 0, "the first of them found nothing"
        assert len({choice.token_ids for choice in answer.choices}) > 1


async def test_a_verifier_that_returns_has_an_empty_cache(target_dir, draft_dir, expected):
    want = (await expected(0, GREEDY))[PROMPTS.index(SHARED)]
    async with cluster(target_dir, draft_dir, link="grpc") as c:
        first = await ask(c.client, SHARED, **GREEDY)
        await c.verifier.stop()
        c.verifier = c.verifier.again()
        await c.verifier.start()
        await until_up(c.client, with_drafter=True)
        assert (await c.client.status()).num_blocks_cached == 0
        again = await ask(c.client, SHARED, **GREEDY)
        third = await ask(c.client, SHARED, **GREEDY)
        assert bits([first, again, third]) == [want] * 3
        found = [a.usage.num_cached_tokens for a in (first, again, third)]
        assert found == [0, 0, len(SHARED) - BLOCK]


async def test_a_drafter_that_returns_finds_nothing_where_the_target_does(
    target_dir, draft_dir, expected
):
    want = (await expected(0, GREEDY))[PROMPTS.index(SHARED)]
    async with cluster(target_dir, draft_dir, link="grpc") as c:
        first = await ask(c.client, SHARED, **GREEDY)
        await c.drafters[0].stop()
        c.drafters[0] = c.drafters[0].again()
        await c.drafters[0].start()
        await until_up(c.client, with_drafter=True)
        answers = [await ask(c.client, SHARED, **GREEDY) for _ in range(2)]
        assert bits([first, *answers]) == [want] * 3
        assert [a.usage.num_cached_tokens for a in answers] == [len(SHARED) - BLOCK] * 2
        assert all(a.speculation.num_draft_tokens > 0 for a in answers)


async def test_a_drafter_finds_what_the_target_does_not(target_dir, draft_dir):
    """The target's pool is too small to keep what the drafter's keeps."""
    async with cluster(target_dir, draft_dir, num_blocks=10) as c:
        c.drafters[0].config = replace(c.drafters[0].config, num_blocks=200)
        await c.drafters[0].stop()
        c.drafters[0] = c.drafters[0].again()
        await c.drafters[0].start()
        await until_up(c.client, with_drafter=True)
        other = [250 - i for i in range(6 * BLOCK)]
        first, _, again = [await ask(c.client, p, **GREEDY) for p in (SHARED, other, SHARED)]
        assert bits([again]) == bits([first])
        assert again.usage.num_cached_tokens < len(SHARED) - BLOCK
        status = await until_status(c.client, lambda s: _hits_of_drafter(s) > 0)
        assert _hits_of_drafter(status) == len(SHARED) - BLOCK


def _hits_of_drafter(status):
    (usage,) = [w.usage for w in status.workers if w.role == "drafter"]
    return usage.num_prefix_hit_tokens if usage is not None else 0


@pytest.mark.parametrize("value", [math.nan, math.inf])
async def test_what_a_row_without_numbers_published_is_found_by_nobody(
    target_dir, tmp_path, plain_greedy, value
):
    shutil.copytree(target_dir, tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    weights["model.embed_tokens.weight"][BAD] = value
    save_file(weights, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    async with cluster(tmp_path / "model", mode=(1, 4, 0), coordinator=in_small_chunks) as c:
        with pytest.raises(NonFiniteError):
            await ask(c.client, [*SHARED[: 4 * BLOCK], BAD, *SHARED[:BLOCK]], **GREEDY)
        status = await idle(c.client)
        assert status.num_blocks_cached == 0, "two chunks of it were sound, and are withdrawn"
        good = await ask(c.client, SHARED, **GREEDY)
        assert good.usage.num_cached_tokens == 0
        assert good.token_ids == plain_greedy(SHARED, NUM_TOKENS)
        with pytest.raises(NonFiniteError):
            await ask(c.client, [*SHARED[: 4 * BLOCK], BAD, *SHARED[:BLOCK]], **GREEDY)
        assert (await idle(c.client)).counters.num_prefix_hits == 1
        again = await ask(c.client, SHARED, **GREEDY)
        assert bits([again]) == bits([good])
