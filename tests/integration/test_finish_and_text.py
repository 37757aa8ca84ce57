"""Through the public API: where an output ends and what text it has.

The trick: decode plainly first, then declare one of the produced tokens an end. Its
position is then known exactly, also inside an accepted run, because the oracle accepts all of k.
"""

from __future__ import annotations

import pytest

from minedraft.types import DebugOptions, FinishReason
from tests.integration.cluster import cluster
from tests.integration.conftest import gather

PROMPT = "the quick brown fox"
N = 24


@pytest.fixture
async def oracle(target_dir):
    async with cluster(target_dir, target_dir, kind="oracle", mode=(2, 4, 7)) as c:
        yield c.client


@pytest.fixture
async def plain(oracle):
    return await oracle.generate(PROMPT, temperature=0, max_tokens=N, ignore_eos=True)


def first_of(tokens, start):
    """An index >= start whose token does not occur before it."""
    return next(i for i in range(start, len(tokens)) if tokens[i] not in tokens[:i])


async def test_a_stop_id_inside_an_accepted_run_ends_it_there(oracle, plain):
    for start in range(14):
        at = first_of(plain.token_ids, start)
        stop = plain.token_ids[at]
        got = await oracle.generate(
            PROMPT, temperature=0, max_tokens=N, ignore_eos=True, stop_token_ids=[stop]
        )
        assert got.token_ids == plain.token_ids[: at + 1]
        assert (got.finish_reason, got.stop_reason) == (FinishReason.STOP, stop)
        assert got.usage.num_output_tokens == at + 1


async def test_a_stop_string_anywhere_in_a_run_is_found_and_never_leaks(oracle, plain):
    text = plain.text
    for start in range(0, len(text) - 3, 5):
        stop = text[start : start + 3]
        where = text.index(stop)
        stream = oracle.stream(PROMPT, temperature=0, max_tokens=N, ignore_eos=True, stop=stop)
        seen = "".join([delta.text async for delta in stream])
        got = stream.completion
        assert got.text == seen == text[:where]
        assert (got.finish_reason, got.stop_reason) == (FinishReason.STOP, stop)
        assert got.token_ids == plain.token_ids[: len(got.token_ids)]


async def test_the_stop_string_stays_if_asked_for(oracle, plain):
    stop = plain.text[10:13]
    got = await oracle.generate(
        PROMPT,
        temperature=0,
        max_tokens=N,
        ignore_eos=True,
        stop=[stop, "never there"],
        include_stop_str_in_output=True,
    )
    assert got.text == plain.text[: plain.text.index(stop) + len(stop)]


async def test_min_tokens_masks_stops_in_tokens_not_in_steps(oracle, plain):
    stop = plain.token_ids[1]
    for floor in (0, 1, 2, 3, 9):
        got = await oracle.generate(
            PROMPT,
            temperature=0,
            max_tokens=N,
            ignore_eos=True,
            stop_token_ids=[stop],
            min_tokens=floor,
        )
        assert stop not in got.token_ids[:floor]
        assert len(got.token_ids) >= max(floor, 1)


async def test_ignore_eos_gives_exactly_max_tokens(oracle):
    for max_tokens in (1, 2, 7, 8, 9, 30):
        got = await oracle.generate(PROMPT, temperature=0, max_tokens=max_tokens, ignore_eos=True)
        assert len(got.token_ids) == max_tokens
        assert got.finish_reason is FinishReason.LENGTH


async def test_a_stop_token_in_the_last_slot_is_a_stop(oracle, plain):
    at = first_of(plain.token_ids, 8)
    stop = plain.token_ids[at]
    got = await oracle.generate(
        PROMPT, temperature=0, max_tokens=at + 1, ignore_eos=True, stop_token_ids=[stop]
    )
    assert got.finish_reason is FinishReason.STOP
    assert got.stop_reason == stop


async def test_an_eos_that_the_target_rejects_ends_nothing(target_dir, plain_greedy):
    prompt = list(range(5, 17))
    expected = plain_greedy(prompt, N)
    eos = 2
    assert eos not in expected
    script = tuple(eos if i % 3 == 1 else token for i, token in enumerate(expected))
    async with cluster(target_dir, target_dir, kind="scripted", mode=(1, 2, 4)) as c:
        got = await c.client.generate(
            prompt,
            temperature=0,
            max_tokens=N,
            debug=DebugOptions(reference_token_ids=script),
        )
    assert got.token_ids == expected
    assert got.finish_reason is FinishReason.LENGTH


async def test_usage_counts_what_was_emitted(oracle, plain):
    stop = plain.text[14:17]
    got = await oracle.generate(PROMPT, temperature=0, max_tokens=N, ignore_eos=True, stop=stop)
    stats = got.speculation
    assert got.usage.num_output_tokens == len(got.token_ids)
    assert stats.num_accepted_tokens <= stats.num_draft_tokens
    assert sum(stats.acceptance_histogram) == stats.num_drafts


async def test_streamed_deltas_make_the_unary_answer(oracle, tokenizer):
    for options in (
        {"temperature": 0},
        {"temperature": 1.2, "seed": 3},
        {"temperature": 1.5, "seed": 4, "stop": ["e"]},
    ):
        options |= {"max_tokens": 40, "ignore_eos": True}
        whole = await oracle.generate(PROMPT, **options)
        stream = oracle.stream(PROMPT, **options)
        deltas = [delta async for delta in stream]
        assert tuple(i for delta in deltas for i in delta.token_ids) == whole.token_ids
        assert "".join(delta.text for delta in deltas) == whole.text
        if "stop" not in options:
            assert whole.text == tokenizer.decode(whole.token_ids)


async def test_a_broken_character_is_never_streamed(oracle):
    """Random byte tokens make broken UTF-8 all the time; an unfinished tail must wait."""
    results = await gather(
        *(oracle.generate("é", temperature=2.0, seed=i, max_tokens=30) for i in range(8))
    )
    for seed, result in enumerate(results):
        stream = oracle.stream("é", temperature=2.0, seed=seed, max_tokens=30)
        text = ""
        async for delta in stream:
            text += delta.text
            delta.text.encode()  # no lone surrogates
        assert text == result.text


async def test_n_samples_have_their_own_ends_and_one_prompt(oracle):
    got = await oracle.generate(
        PROMPT, temperature=1.0, seed=9, n=3, max_tokens=20, ignore_eos=True, stop=["e"]
    )
    assert [choice.index for choice in got.choices] == [0, 1, 2]
    assert len({choice.token_ids for choice in got.choices}) == 3
    assert got.usage.num_prompt_tokens == got.num_prompt_tokens
    assert got.usage.num_output_tokens == sum(len(c.token_ids) for c in got.choices)
    alone = await oracle.generate(
        PROMPT, temperature=1.0, seed=9, max_tokens=20, ignore_eos=True, stop=["e"]
    )
    assert alone.token_ids == got.choices[0].token_ids


async def test_a_chat_uses_the_targets_template(oracle, tokenizer):
    message = ("user", "the fox")
    by_chat = await oracle.generate(
        messages=[{"role": "user", "content": "the fox"}], temperature=0, max_tokens=6
    )
    by_ids = await oracle.generate(tokenizer.encode_chat([message]), temperature=0, max_tokens=6)
    assert by_chat.token_ids == by_ids.token_ids
