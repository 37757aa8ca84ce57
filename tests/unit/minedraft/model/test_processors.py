from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.model import processors
from minedraft.model.sampling_row import Position, SamplingRow
from minedraft.types import RowParams

V = 12
TOKENS = st.integers(0, V - 1)


def process(logits, params: RowParams, prompt=(0,), output=(), prefix=()) -> list[float]:
    scores = torch.tensor([list(logits)], dtype=torch.float32)
    processors.apply(scores, [Position(SamplingRow(params, prompt, output), prefix)])
    return scores[0].tolist()


def reference(logits, params: RowParams, prompt, output, prefix) -> list[float]:
    """The parameters, one token at a time."""
    generated = [*output, *prefix]
    scores = list(logits)
    for t in range(V):
        if t in prompt or t in generated:
            r = params.repetition_penalty
            scores[t] = scores[t] / r if scores[t] > 0 else scores[t] * r
        scores[t] -= params.frequency_penalty * generated.count(t)
        scores[t] -= params.presence_penalty * (t in generated)
        scores[t] += params.logit_bias.get(t, 0.0)
    masked = set()
    if len(generated) < params.min_tokens:
        masked |= set(params.stop_ids)
    for word in params.bad_words:
        n = len(word) - 1
        if n <= len(generated) and tuple(generated[len(generated) - n :]) == tuple(word[:n]):
            masked.add(word[-1])
    allowed = set(params.allowed_token_ids) or set(range(V))
    survivors = (allowed - masked) or allowed
    return [scores[t] if t in survivors else -math.inf for t in range(V)]


params_strategy = st.builds(
    RowParams,
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.3, 2.0]),
    presence_penalty=st.sampled_from([0.0, -1.5, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -0.5, 1.1]),
    logit_bias=st.dictionaries(TOKENS, st.sampled_from([-100.0, -1.0, 2.5, 100.0]), max_size=3),
    min_tokens=st.integers(0, 6),
    stop_ids=st.lists(TOKENS, max_size=3, unique=True).map(tuple),
    bad_words=st.lists(
        st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), max_size=4
    ).map(tuple),
    allowed_token_ids=st.lists(TOKENS, max_size=4, unique=True).map(tuple),
)


@settings(deadline=None)
@given(
    params=params_strategy,
    logits=st.lists(
        st.sampled_from([-math.inf, -3.5, -1.0, 0.0, 0.25, 4.0]), min_size=V, max_size=V
    ),
    prompt=st.lists(TOKENS, min_size=1, max_size=5),
    output=st.lists(st.integers(0, 4), max_size=5),
    prefix=st.lists(st.integers(0, 4), max_size=4),
)
def test_processors_equal_a_token_by_token_reference(params, logits, prompt, output, prefix):
    expected = reference(logits, params, prompt, output, prefix)
    if params.allowed_token_ids and max(expected) == -math.inf:
        expected = [0.0 if t in params.allowed_token_ids else -math.inf for t in range(V)]
        found = process(logits, params, prompt, output, prefix)
        assert all(f == -math.inf for t, f in enumerate(found) if t not in params.allowed_token_ids)
        return
    found = process(logits, params, prompt, output, prefix)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)


@settings(deadline=None)
@given(
    params=params_strategy, output=st.lists(TOKENS, max_size=5), prefix=st.lists(TOKENS, max_size=4)
)
def test_a_draft_prefix_counts_as_if_it_were_committed(params, output, prefix):
    logits = [math.sin(t) for t in range(V)]
    assert process(logits, params, (1,), output, prefix) == process(
        logits, params, (1,), [*output, *prefix], ()
    )


def test_rows_without_processors_and_neighbours_are_untouched():
    scores = torch.arange(2.0 * V).view(2, V)
    plain = Position(SamplingRow(RowParams(), (1,)))
    biased = Position(SamplingRow(RowParams(logit_bias={3: 1.0}), (1,)))
    processors.apply(scores, [plain, biased])
    expected = torch.arange(2.0 * V).view(2, V)
    expected[1, 3] += 1
    assert torch.equal(scores, expected)


@pytest.mark.parametrize(
    ("committed", "drafted", "masked"),
    [(0, 0, True), (1, 0, True), (0, 1, True), (2, 0, False), (1, 1, False), (0, 3, False)],
)
def test_stop_ids_are_masked_below_min_tokens_counting_drafts(committed, drafted, masked):
    found = process(
        [0.0] * V,
        RowParams(min_tokens=2, stop_ids=(7, 9)),
        output=[5] * committed,
        prefix=[5] * drafted,
    )
    assert [found[7] == -math.inf, found[9] == -math.inf] == [masked, masked]


@pytest.mark.parametrize("split", [0, 1, 2])
def test_bad_word_is_masked_wherever_its_prefix_lies(split):
    tokens = [4, 5]
    found = process(
        [0.0] * V, RowParams(bad_words=((4, 5, 6),)), output=tokens[:split], prefix=tokens[split:]
    )
    assert [t for t in range(V) if found[t] == -math.inf] == [6]


def test_bad_word_does_not_match_the_prompt():
    assert process([0.0] * V, RowParams(bad_words=((4, 5),)), prompt=(4,))[5] == 0.0


def test_allow_list_wins_when_everything_in_it_is_forbidden():
    params = RowParams(allowed_token_ids=(2, 3), bad_words=((2,),), min_tokens=5, stop_ids=(3,))
    found = process([1.0] * V, params)
    assert [t for t in range(V) if found[t] > -math.inf] == [2, 3]


def test_allow_list_wins_when_the_model_rules_it_out():
    found = process([1.0, 2.0] + [-math.inf] * (V - 2), RowParams(allowed_token_ids=(5, 6)))
    assert [t for t in range(V) if found[t] > -math.inf] == [5, 6]


def test_ids_outside_the_vocabulary_are_ignored():
    params = RowParams(
        logit_bias={V: 5.0, 1: 1.0},
        bad_words=((V + 3,),),
        stop_ids=(V + 1,),
        min_tokens=3,
        allowed_token_ids=(V + 9,),
    )
    assert process([0.0] * V, params) == [0.0, 1.0] + [0.0] * (V - 2)
