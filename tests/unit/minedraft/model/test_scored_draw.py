"""The scored draw has the tokens of `draw`, and scores that say what their definition says."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import StateError
from minedraft.model import noise, processors, sampling, scored_draw
from minedraft.model.sampling import BROKEN, Position, SamplingRow
from minedraft.types import MAX_MARGIN, RowParams
from tests.c_kernels import draw_kernel
from tests.unit.minedraft.model.test_sampling import params_strategy, positions_of
from tests.unit.minedraft.model.test_truncation import reference

KINDS = (False, True)


@pytest.fixture(scope="module", params=["torch", "c"])
def scored(request):
    """Draw and score by each maker."""
    kernel = draw_kernel() if request.param == "c" else None
    return partial(scored_draw.draw_scored, kernel=kernel)


def plain_score(logits: torch.Tensor, position: Position, *, is_surprisal: bool) -> float:
    """The definition: process, sort, perturb everything, take the two largest."""
    params = position.row.params
    scores = logits.float().clone()
    processors.apply(scores[None], [position])
    if params.is_greedy:
        best = scores.max()
        if is_surprisal:
            return float((scores - best).double().logsumexp(0))
        perturbed = scores
    else:
        scores = scores / torch.tensor(params.temperature)
        scores = scores - scores.max()
        kept = torch.tensor(reference(scores, params, 0.0))
        key = noise.row_keys([noise.row_key(params.seed, position.index)], logits.device)
        perturbed = scores[kept].double() + noise.gumbel(key, kept)
        if is_surprisal:
            kept_scores = scores[kept].double()
            return float(kept_scores.logsumexp(0) - kept_scores[perturbed.argmax()])
    if len(perturbed) == 1:
        return MAX_MARGIN
    first, second = perturbed.topk(2).values.tolist()
    return min(first - second, MAX_MARGIN)


@settings(max_examples=30, deadline=None)
@given(
    params=st.lists(params_strategy, min_size=1, max_size=6),
    vocab_size=st.sampled_from([10, 64, 200, 3000]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    spread=st.sampled_from([0.1, 3.0, 20.0]),
    is_surprisal=st.booleans(),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_a_score_is_its_definition_and_the_token_that_of_draw(
    scored, params, vocab_size, dtype, spread, is_surprisal, seed, data
):
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(len(params), vocab_size, generator=generator) * spread).to(dtype)
    history = st.lists(st.integers(0, 9), max_size=4)
    positions = [
        Position(SamplingRow(p, (1, 2, 3), data.draw(history)), data.draw(history)) for p in params
    ]
    before = logits.clone()
    tokens, scores = scored(logits, positions, is_surprisal=is_surprisal)
    assert tokens == sampling.draw(logits, positions)
    assert torch.equal(logits, before)
    wanted = [
        plain_score(row, position, is_surprisal=is_surprisal)
        for row, position in zip(logits, positions, strict=True)
    ]
    assert scores == pytest.approx(wanted, abs=2e-6, rel=2e-6)
    assert all(0 <= score < math.inf for score in scores)
    assert is_surprisal or max(scores) <= MAX_MARGIN


@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
def test_of_a_large_vocabulary_nothing_within_reach_is_lost(scored, spread):
    """Most tokens are skipped unseen; the second best is none of them unless it is far behind."""
    logits = torch.randn(40, 50_000, generator=torch.Generator().manual_seed(1)) * spread
    positions = positions_of(*[RowParams(temperature=1.0, seed=s) for s in range(40)])
    _, scores = scored(logits, positions)
    every = torch.arange(50_000)
    for row, position, score in zip(logits, positions, scores, strict=True):
        key = noise.row_keys([noise.row_key(position.row.params.seed, 3)], row.device)
        perturbed = (row - row.max()).double() + noise.gumbel(key, every)
        first, second = perturbed.topk(2).values.tolist()
        assert score == pytest.approx(min(first - second, MAX_MARGIN), abs=1e-6)
    assert len({round(score, 3) for score in scores}) > 30


def test_a_distant_second_is_as_good_as_none(scored):
    logits = torch.full((3, 200), -50.0)
    logits[:, 7] = 0.0
    logits[1, 8] = -3.0
    logits[2, 8:] = -math.inf
    greedy = positions_of(*[RowParams(temperature=0.0)] * 3)
    assert scored(logits, greedy) == ([7] * 3, [MAX_MARGIN, 3.0, MAX_MARGIN])
    alone = positions_of(*[RowParams(temperature=1.0, top_k=1)] * 3)
    assert scored(logits, alone) == ([7] * 3, [MAX_MARGIN] * 3)
    assert scored(logits, alone, is_surprisal=True) == ([7] * 3, [0.0] * 3)


def test_equal_scores_have_no_margin(scored):
    logits = torch.zeros(2, 130)
    assert scored(logits, positions_of(*[RowParams(temperature=0.0)] * 2)) == ([0, 0], [0.0, 0.0])
    logits[:, [3, 129]] = 5.0
    assert scored(logits, positions_of(*[RowParams(temperature=0.0)] * 2)) == ([3, 3], [0.0, 0.0])


@pytest.mark.parametrize("is_surprisal", KINDS)
@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_what_is_no_distribution_has_neither_token_nor_score(scored, odd, is_surprisal):
    """Minus infinity that parameters make is a distribution all the same."""
    logits = torch.randn(6, 100, generator=torch.Generator().manual_seed(1))
    logits[:4, 5] = odd
    logits[5] = -math.inf
    banned = {"bad_words": ((5,),)}
    params = [
        RowParams(temperature=0.0),
        RowParams(temperature=1.0, seed=1),
        RowParams(temperature=0.0, **banned),
        RowParams(temperature=1.0, top_p=0.9, seed=1, **banned),
        RowParams(temperature=1.0, allowed_token_ids=(5,)),
        RowParams(temperature=1.0),
    ]
    tokens, scores = scored(logits, positions_of(*params), is_surprisal=is_surprisal)
    assert tokens == [BROKEN] * 4 + [5, BROKEN]
    assert scores == [0.0] * 4 + [0.0 if is_surprisal else MAX_MARGIN, 0.0]


@pytest.mark.parametrize("is_surprisal", KINDS)
def test_where_parameters_rule_out_all_that_the_model_has_the_score_is_a_number(
    scored, is_surprisal
):
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, -math.inf]] * 2)
    params = [RowParams(temperature=t, bad_words=((1,),)) for t in (0.0, 1.0)]
    tokens, scores = scored(logits, positions_of(*params), is_surprisal=is_surprisal)
    assert tokens == sampling.draw(logits, positions_of(*params))
    assert all(0 <= score < math.inf for score in scores)


@pytest.mark.parametrize("is_surprisal", KINDS)
def test_neither_mates_nor_the_maker_move_a_bit_of_a_score(is_surprisal):
    params = [
        RowParams(temperature=t, top_k=k, top_p=p, min_p=m, seed=s)
        for s, (t, k, p, m) in enumerate(
            [
                (0.0, 0, 1.0, 0.0),
                (1.0, 0, 1.0, 0.0),
                (0.8, 0, 0.95, 0.0),
                (0.8, 0, 0.3, 0.0),
                (1.0, 40, 1.0, 0.0),
                (1.0, 40, 0.9, 0.01),
                (1.5, 0, 1.0, 0.05),
            ]
            * 6
        )
    ]
    logits = torch.randn(len(params), 5000, generator=torch.Generator().manual_seed(3)) * 2
    positions = positions_of(*params)
    expected = scored_draw.draw_scored(logits, positions, is_surprisal=is_surprisal)
    for kernel in (draw_kernel(), None):
        draw = partial(scored_draw.draw_scored, kernel=kernel, is_surprisal=is_surprisal)
        assert draw(logits, positions) == expected
        for i in range(0, len(params), 5):
            alone = draw(logits[i : i + 1], positions[i : i + 1])
            assert alone == ([expected[0][i]], [expected[1][i]])
    assert len(set(expected[1])) > len(params) / 2


def test_a_row_that_the_kernel_leaves_is_drawn_and_scored_by_torch():
    logits = torch.randn(1, 3000, generator=torch.Generator().manual_seed(3)).expand(100, -1)
    positions = positions_of(*[RowParams(temperature=1.0, top_p=0.6, seed=s) for s in range(100)])
    hasty = draw_kernel(tries=1)
    for is_surprisal in KINDS:
        found = scored_draw.draw_scored(logits, positions, hasty, is_surprisal=is_surprisal)
        assert found == scored_draw.draw_scored(logits, positions, is_surprisal=is_surprisal)


def test_logits_are_one_row_per_position(scored):
    with pytest.raises(StateError, match=r"logits of shape \(2, 8\) for 1 positions"):
        scored(torch.zeros(2, 8), positions_of(RowParams()))
    assert scored(torch.zeros(0, 8), []) == ([], [])
