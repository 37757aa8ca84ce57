"""Sampling through the public API: every field is honoured on every token."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.integration.cluster import cluster
from tests.integration.conftest import gather

PROMPT = list(range(5, 20))
N = 16


@pytest.fixture
async def client(target_dir, draft_dir):
    async with cluster(target_dir, target_dir, kind="oracle", mode=(2, 4, 3)) as c:
        yield c.client


@pytest.fixture(scope="module")
def target_model(target_dir):
    return AutoModelForCausalLM.from_pretrained(target_dir, dtype=torch.float32).eval()


async def test_logprobs_are_the_targets_one_entry_a_token_each_its_own_width(client, target_model):
    widths = [None, 0, 5, 20]
    results = await gather(
        *(
            client.generate(PROMPT, temperature=0.0, max_tokens=N, ignore_eos=True, logprobs=w)
            for w in widths
        )
    )
    tokens = results[0].token_ids
    with torch.inference_mode():
        logits = target_model(torch.tensor([[*PROMPT, *tokens]])).logits[0, len(PROMPT) - 1 : -1]
    expected = logits.float().log_softmax(-1)
    for width, result in zip(widths, results, strict=True):
        assert result.token_ids == tokens
        if width is None:
            assert result.logprobs == ()
            continue
        assert len(result.logprobs) == N
        for i, entry in enumerate(result.logprobs):
            assert entry.token_id == tokens[i]
            assert math.isclose(entry.logprob, expected[i, tokens[i]], abs_tol=1e-4)
            assert len(entry.top) == width
            if width:
                assert dict(entry.top)[tokens[i]] == entry.logprob  # greedy: it is in the top


async def test_logprobs_are_raw_whatever_the_parameters(client):
    plain = await client.generate(PROMPT, temperature=0, max_tokens=1, logprobs=3)
    sampled = await client.generate(
        PROMPT, temperature=0.3, top_k=1, max_tokens=1, logprobs=3, seed=1
    )
    assert sampled.logprobs[0].top == plain.logprobs[0].top


async def test_seeds_matter_above_zero_and_not_at_zero(client):
    hot = [
        (await client.generate(PROMPT, temperature=2.0, seed=s, max_tokens=N)).token_ids
        for s in range(4)
    ]
    assert len(set(hot)) == 4
    cold = [
        (await client.generate(PROMPT, temperature=0, seed=s, max_tokens=N)).token_ids
        for s in (1, 2)
    ]
    assert cold[0] == cold[1]


async def test_an_unseeded_request_reports_a_seed_that_repeats_it(client):
    first = await client.generate(PROMPT, temperature=1.0, max_tokens=N)
    again = await client.generate(PROMPT, temperature=1.0, max_tokens=N, seed=first.seed)
    other = await client.generate(PROMPT, temperature=1.0, max_tokens=N)
    assert first.token_ids == again.token_ids
    assert other.seed != first.seed


def spelled_as_emitted(tokenizer, tokens):
    """Text of two tokens in a row that the tokenizer itself would spell with these two."""
    for pair in itertools.pairwise(tokens[2:]):
        text = tokenizer.decode(pair)
        if "�" not in text and text.strip() and pair in tokenizer.encode_bad_word(text):
            return text
    raise AssertionError("this output has no such pair; choose another prompt")


async def test_bad_words_and_allow_lists_hold_at_every_token(client, tokenizer):
    plain = await client.generate("the fox", temperature=0, max_tokens=40, ignore_eos=True)
    bad = spelled_as_emitted(tokenizer, plain.token_ids)
    got = await client.generate(
        "the fox", temperature=0, max_tokens=40, ignore_eos=True, bad_words=[bad]
    )
    spelled = tokenizer.encode_bad_word(bad)
    for word in spelled:
        windows = [got.token_ids[i : i + len(word)] for i in range(len(got.token_ids))]
        assert word not in windows
    assert got.token_ids != plain.token_ids
    allowed = [30, 31, 32, 33]
    fenced = await client.generate(
        PROMPT, temperature=1.0, seed=3, max_tokens=40, allowed_token_ids=allowed, ignore_eos=True
    )
    assert set(fenced.token_ids) <= set(allowed)
    assert len(set(fenced.token_ids)) > 1


async def test_edge_values_do_not_crash_and_near_zero_is_greedy(client):
    greedy = await client.generate(PROMPT, temperature=0, max_tokens=N, ignore_eos=True)
    for options in (
        {"temperature": 1e-6},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 1e-9},
        {"temperature": 1.0, "min_p": 1.0},
    ):
        got = await client.generate(PROMPT, max_tokens=N, ignore_eos=True, seed=1, **options)
        assert got.token_ids == greedy.token_ids, options
    wide = await client.generate(PROMPT, temperature=1.0, top_k=10**6, seed=1, max_tokens=N)
    assert wide.token_ids


async def test_unset_temperature_samples_and_zero_is_greedy(client):
    greedy = await client.generate(PROMPT, temperature=0, max_tokens=N, ignore_eos=True)
    unset = await client.generate(PROMPT, max_tokens=N, ignore_eos=True, seed=8)
    one = await client.generate(PROMPT, temperature=1.0, max_tokens=N, ignore_eos=True, seed=8)
    assert unset.token_ids == one.token_ids != greedy.token_ids
