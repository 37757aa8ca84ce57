"""The output is the target's own, whatever drafts it: the rule everything else serves."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from minedraft.types import DebugOptions
from tests.integration.cluster import cluster, until_status
from tests.integration.conftest import gather
from tests.tiny_models import make_tiny_llama

MODES = {"ar": 1, "sd": 1, "psd": 2}
MIXED = [list(range(5, 6 + 3 * i)) for i in range(16)]
"""Sixteen prompts of 1 to 46 tokens."""
NUM_TOKENS = 24


def references(expected):
    """Scripts that agree with the target for a while and then do not, differently each."""
    rng = random.Random(7)
    return [
        tuple(token if rng.random() < 0.8 else (token + 1) % 300 for token in tokens)
        for tokens in expected
    ]


async def run_all(client, prompts, *, scripts=None, **options):
    scripts = scripts or [()] * len(prompts)
    return await gather(
        *(
            client.generate(
                prompt,
                max_tokens=NUM_TOKENS,
                ignore_eos=True,
                debug=DebugOptions(reference_token_ids=script),
                **options,
            )
            for prompt, script in zip(prompts, scripts, strict=True)
        )
    )


async def drained(client):
    """The last closes may still be on their way; blocks must be back once they are."""
    return await until_status(client, lambda s: s.is_idle and s.num_blocks_used == 0)


async def test_a_drafter_with_a_shorter_context_drafts_up_to_it(target_dir, tmp_path, plain_greedy):
    short = make_tiny_llama(tmp_path / "short", layers=1, max_len=16)
    prompts = [MIXED[1], MIXED[4], MIXED[15]]
    async with cluster(target_dir, short) as c:
        results = await run_all(c.client, prompts, temperature=0)
        assert [r.token_ids for r in results] == [plain_greedy(p, NUM_TOKENS) for p in prompts]
        drafted = [r.choices[0].speculation.num_draft_tokens for r in results]
        assert drafted[0] > 0, "4 tokens at first"
        assert drafted[2] == 0, "46 tokens at first"
        (drafter,) = [w for w in (await drained(c.client)).workers if w.role == "drafter"]
        assert (drafter.link_epoch, drafter.last_error) == (1, "")


@pytest.mark.parametrize("kind", ["oracle", "anti_oracle", "scripted", "model"])
@pytest.mark.timeout(60)
async def test_greedy_output_is_the_targets_own(kind, target_dir, draft_dir, plain_greedy):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in MIXED]
    draft = draft_dir if kind == "model" else target_dir
    scripts = references(expected)
    async with cluster(target_dir, draft, kind=kind) as c:
        for mode, num_batches in MODES.items():
            for k in (0,) if mode == "ar" else (1, 3, 7):
                before = (await c.client.status()).counters
                await c.client.set_mode(
                    num_batches=num_batches, max_batch_size=5, num_draft_tokens=k
                )
                results = await run_all(c.client, MIXED, scripts=scripts, temperature=0)
                assert [r.token_ids for r in results] == expected, (mode, k)
                after = (await drained(c.client)).counters
                accepted = after.num_accepted_tokens - before.num_accepted_tokens
                drafted = after.num_draft_tokens - before.num_draft_tokens
                assert (drafted > 0) == (k > 0)
                if kind == "oracle":
                    assert accepted == drafted
                if kind == "anti_oracle":
                    assert accepted == 0
                if kind == "scripted" and k:
                    assert 0 < accepted < drafted


@pytest.mark.parametrize("size", [1, 2, 3, 8, 16])
async def test_any_batch_size_gives_the_same_output(size, target_dir, plain_greedy):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in MIXED[:size]]
    async with cluster(target_dir, target_dir, kind="scripted", mode=(2, 8, 3)) as c:
        scripts = references(expected)
        results = await run_all(c.client, MIXED[:size], scripts=scripts, temperature=0)
    assert [r.token_ids for r in results] == expected


SAMPLED = [
    {"temperature": 1.0, "seed": 11},
    {"temperature": 0.7, "top_p": 0.9, "seed": 12},
    {"temperature": 1.3, "top_k": 20, "seed": 13},
    {"temperature": 0.9, "min_p": 0.05, "seed": 2**64 - 1},
    {"temperature": 1.0, "repetition_penalty": 1.3, "seed": 14},
    {"temperature": 0.8, "frequency_penalty": 0.7, "presence_penalty": -0.4, "seed": 15},
    {"temperature": 1.1, "logit_bias": {7: 4.0, 9: -50.0}, "seed": 16},
    {"temperature": 0.0},
]


async def sampled(client):
    return await gather(
        *(
            client.generate(
                MIXED[i], max_tokens=NUM_TOKENS, ignore_eos=True, **SAMPLED[i % len(SAMPLED)]
            )
            for i in range(len(SAMPLED))
        )
    )


@pytest.mark.timeout(60)
async def test_seeded_sampling_does_not_depend_on_drafter_k_mode_or_batch_mates(
    target_dir, draft_dir
):
    async with cluster(target_dir, mode=(1, 8, 0)) as c:
        expected = [r.token_ids for r in await sampled(c.client)]
        alone = await c.client.generate(
            MIXED[1], max_tokens=NUM_TOKENS, ignore_eos=True, **SAMPLED[1]
        )
        assert alone.token_ids == expected[1]
        assert len({tokens[:6] for tokens in expected}) == len(expected)
    for kind, draft in (("model", draft_dir), ("oracle", target_dir), ("anti_oracle", target_dir)):
        async with cluster(target_dir, draft, kind=kind) as c:
            for num_batches, k in ((1, 3), (2, 1), (2, 7)):
                await c.client.set_mode(
                    num_batches=num_batches, max_batch_size=3, num_draft_tokens=k
                )
                results = await sampled(c.client)
                assert [r.token_ids for r in results] == expected, (kind, num_batches, k)
            if kind == "oracle":
                # The same noise on both sides: a drafter with the target's weights is always right.
                stats = [r.speculation for r in results]
                assert all(s.acceptance_rate == 1.0 for s in stats if s.num_draft_tokens)


async def test_a_synthetic_drafter_accepts_at_the_given_rate_and_changes_nothing(
    target_dir, draft_dir, plain_greedy
):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in MIXED]
    async with cluster(target_dir, draft_dir, kind="synthetic", mode=(2, 8, 1)) as c:
        results = await gather(
            *(
                c.client.generate(
                    prompt,
                    temperature=0,
                    max_tokens=NUM_TOKENS,
                    ignore_eos=True,
                    debug=DebugOptions(reference_token_ids=tokens, synthetic_acceptance=0.8),
                    seed=i,
                )
                for i, (prompt, tokens) in enumerate(zip(MIXED, expected, strict=True))
            )
        )
        counters = (await drained(c.client)).counters
    assert [r.token_ids for r in results] == expected
    rate = counters.num_accepted_tokens / counters.num_draft_tokens
    assert 0.7 < rate < 0.9  # about 200 coins: three standard deviations are 0.085


async def test_rejection_keeps_greedy_output_and_is_reproducible(
    target_dir, draft_dir, plain_greedy
):
    """Above temperature 0 drafts have a say, so each row must have the same ones in both runs."""

    def same_drafts(config):
        return replace(config, prefill_stall=1000.0, prefix_cache=False)

    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in MIXED[:6]]
    async with cluster(
        target_dir, draft_dir, acceptance="rejection", mode=(2, 4, 3), coordinator=same_drafts
    ) as c:
        greedy = await run_all(c.client, MIXED[:6], temperature=0)
        first = await run_all(c.client, MIXED[:6], temperature=0.8, seed=5)
        again = await run_all(c.client, MIXED[:6], temperature=0.8, seed=5)
    assert [r.token_ids for r in greedy] == expected
    assert [r.token_ids for r in first] == [r.token_ids for r in again]


async def test_every_transport_carries_the_same_tokens(target_dir, draft_dir, plain_greedy):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in MIXED[:6]]
    for link in ("local", "grpc", "gloo"):
        async with cluster(target_dir, target_dir, kind="oracle", link=link, mode=(2, 3, 3)) as c:
            results = await run_all(c.client, MIXED[:6], temperature=0)
            counters = (await c.client.status()).counters
        assert [r.token_ids for r in results] == expected, link
        assert counters.num_accepted_tokens == counters.num_draft_tokens > 0, link


async def test_a_pool_too_small_for_all_preempts_and_changes_nothing(target_dir, plain_greedy):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in MIXED]
    seeded = {"temperature": 0.9, "seed": 3}
    async with cluster(target_dir, target_dir, kind="oracle", num_blocks=200) as c:
        wanted = await run_all(c.client, MIXED[:8], **seeded)
    async with cluster(target_dir, target_dir, kind="oracle", num_blocks=20) as c:
        results = await run_all(c.client, MIXED, temperature=0)
        sampled_again = await run_all(c.client, MIXED[:8], **seeded)
        status = await drained(c.client)
    assert status.counters.num_preemptions > 0
    assert [r.token_ids for r in results] == expected
    assert [r.token_ids for r in sampled_again] == [r.token_ids for r in wanted]
