from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.model import mass, truncation
from minedraft.model.truncation import CHUNK, Limits
from minedraft.types import RowParams

CPU = torch.device("cpu")


def survivors(scores: torch.Tensor, params, width=0) -> list[list[int]]:
    """Kept ids of each row, best first."""
    limits = Limits.of(params, CPU, width)
    pad = -scores.shape[1] % CHUNK
    scores = torch.nn.functional.pad(scores, (0, pad), value=-torch.inf)
    scores = scores - scores.amax(-1, keepdim=True)
    kept = truncation.truncate(*truncation.candidates(scores, limits), limits)
    return [kept.token_ids[kept.rows == r].tolist() for r in range(len(scores))]


def reference(scores: torch.Tensor, params: RowParams, p_shift: float) -> list[int]:
    """Sort everything; p_shift moves the top-p target by more than rounding can."""
    ranked = scores.sort(descending=True, stable=True)
    order = ranked.indices[ranked.values > -math.inf].tolist()
    if params.top_k:
        order = order[: params.top_k]
    weights = torch.exp(scores[order].double() - scores.max()).tolist()
    best, total, before, kept = weights[0], math.fsum(weights), 0.0, []
    for t, weight in zip(order, weights, strict=True):
        inside = params.top_p >= 1 or before < (params.top_p + p_shift) * total or not kept
        if inside and weight >= params.min_p * best * (1 - p_shift):
            kept.append(t)
        before += weight
    return kept


def assert_as_reference(scores, params):
    scores = scores - scores.amax(-1, keepdim=True)  # its rounding makes ties: part of the order
    for found, row, p in zip(survivors(scores, params), scores, params, strict=True):
        few, many = reference(row, p, -3e-6), reference(row, p, 3e-6)
        assert many[: len(found)] == found
        assert len(few) <= len(found)


params_strategy = st.builds(
    RowParams,
    temperature=st.just(1.0),
    top_k=st.sampled_from([0, 1, 2, 5, 70, 300, 10_000]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.1, 1e-9]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
).filter(truncation.is_truncated)


@settings(max_examples=60, deadline=None)
@given(
    params=st.lists(params_strategy, min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    vocab_size=st.sampled_from([1, 8, 63, 64, 65, 1000, 5000]),
    spread=st.sampled_from([0.01, 1.0, 4.0, 30.0]),
    grid=st.sampled_from([None, 1.0]),
)
def test_survivors_are_those_of_a_full_sort(params, seed, vocab_size, spread, grid):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(len(params), vocab_size, generator=generator) * spread
    if grid:  # ties
        scores = (scores / grid).round() * grid
    assert_as_reference(scores, params)


@pytest.mark.parametrize("spread", [0.2, 1.0, 2.0, 4.0])
def test_survivors_on_a_real_vocabulary_size_at_every_level(spread):
    params = [
        RowParams(top_p=0.95),
        RowParams(top_p=0.5),
        RowParams(top_k=50),
        RowParams(top_k=400, top_p=0.9),
        RowParams(top_k=3000, top_p=0.9),
        RowParams(min_p=0.02),
        RowParams(top_p=0.99, min_p=0.001),
    ]
    scores = torch.randn(len(params), 49152, generator=torch.Generator().manual_seed(1)) * spread
    assert_as_reference(scores, params)


def test_equal_scores_are_kept_by_lowest_id_and_exactly_k():
    scores = torch.zeros(3, 20_000)
    scores[1, 15_000:] = 1.0
    scores[2] = -0.0
    scores[2, 1::2] = 0.0
    params = [RowParams(top_k=3), RowParams(top_k=4), RowParams(top_p=0.0001)]
    assert survivors(scores, params) == [[0, 1, 2], [15_000, 15_001, 15_002, 15_003], [0, 1]]


def test_ties_at_the_threshold_of_a_level_do_not_lose_low_ids():
    scores = torch.full((1, 49152), -20.0)
    scores[0, 30_000 : 30_000 + 64 * 70 : 64] = 1.0  # 70 chunks with the same maximum
    scores[0, 7] = 1.0
    assert survivors(scores, [RowParams(top_k=2)]) == [[7, 30_000]]


def test_best_token_always_stays():
    scores = torch.tensor([[0.0, 5.0, 1.0]]).repeat(4, 1)
    params = [
        RowParams(top_p=0.0),
        RowParams(top_p=1e-30),
        RowParams(min_p=1.0),
        RowParams(top_k=1),
    ]
    assert survivors(scores, params) == [[1]] * 4
    assert survivors(torch.zeros(1, 20_000), [RowParams(top_p=0.0)]) == [[0]]  # best are all


def test_masked_tokens_never_survive():
    scores = torch.tensor([[0.0, -math.inf, 1.0, -math.inf]]).repeat(3, 1)
    params = [RowParams(top_k=4), RowParams(top_p=0.9999999), RowParams(min_p=1e-9)]
    assert all(row == [2, 0] for row in survivors(scores, params))


def test_width_keeps_the_likeliest_of_what_the_parameters_keep():
    scores = torch.arange(1000.0).mul(-0.01)[None].repeat(3, 1)
    params = [RowParams(), RowParams(top_k=5), RowParams(top_p=0.5)]
    assert [len(row) for row in survivors(scores, params, width=16)] == [16, 5, 16]


def test_survivors_do_not_depend_on_batch_mates():
    """Also bit for bit: the masses and totals that set the boundary."""
    generator = torch.Generator().manual_seed(2)
    for width in (1000, 2001, 49152):
        scores = torch.randn(12, -(-width // CHUNK) * CHUNK, generator=generator) * 3
        scores -= scores.amax(-1, keepdim=True)
        scores[:, width:] = -torch.inf
        params = [RowParams(top_p=0.9 + 0.008 * i) for i in range(12)]
        limits = Limits.of(params, CPU)
        entries, totals = truncation.candidates(scores, limits)
        kept = truncation.truncate(entries, totals, limits)
        for rows in ([0], [11], [3, 4], [5, 9, 1], list(range(11, -1, -1))):
            index = torch.tensor(rows)
            some, some_totals = truncation.candidates(scores[index].clone(), limits[index])
            some_kept = truncation.truncate(some, some_totals, limits[index])
            assert torch.equal(some_totals, totals[index])
            for n, r in enumerate(rows):
                assert torch.equal(
                    some_kept.token_ids[some_kept.rows == n], kept.token_ids[kept.rows == r]
                )
                assert torch.equal(
                    some_kept.masses[some_kept.rows == n], kept.masses[kept.rows == r]
                )


def test_a_threshold_allows_for_what_rounding_to_masses_adds():
    """Tokens of 0.6 units weigh one each: a tenth of them survives, though 0.6 < 0.9."""
    count = 49151
    scores = torch.full((1, count + 1), -28.237)
    scores[0, 7] = 0.0
    assert mass.masses(scores[0, :1]).tolist() == [1]
    p = 1.0 - 0.9 * count / (2**40 + count)
    assert len(survivors(scores, [RowParams(top_p=p)])[0]) == pytest.approx(0.1 * count, abs=3)
