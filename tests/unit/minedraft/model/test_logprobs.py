from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.model.logprobs import FLOOR, logprobs, tree_sum, weights


def test_values_are_log_softmax_of_the_raw_logits():
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0)) * 3
    expected = torch.log_softmax(logits.double(), -1)
    for i, entry in enumerate(logprobs(logits, [5, 6, 7], [0, 3, 20])):
        assert entry.token_id == 5 + i
        assert entry.logprob == pytest.approx(expected[i, 5 + i].item(), abs=1e-5)
        ids = expected[i].topk(20).indices.tolist()
        assert [t for t, _ in entry.top] == ids[: (0, 3, 20)[i]]


def test_emitted_token_has_the_very_float_of_its_place_in_top():
    logits = torch.randn(1, 999, generator=torch.Generator().manual_seed(1)).bfloat16()
    for rank, token in enumerate(logits[0].float().topk(5).indices.tolist()):
        (entry,) = logprobs(logits, [token], [5])
        assert entry.logprob in [value for _, value in entry.top]
        if len(logits[0].unique()) == 999:
            assert entry.top[rank][0] == token


def test_ties_are_listed_by_id_and_cut_to_the_number_asked_for():
    logits = torch.zeros(1, 3000)
    logits[0, 2000] = 1.0
    (entry,) = logprobs(logits, [7], [4])
    assert [t for t, _ in entry.top] == [2000, 0, 1, 2]
    assert entry.logprob == entry.top[1][1]


def test_minus_infinity_and_nan_become_the_floor():
    logits = torch.tensor([[0.0, -math.inf, 0.0], [math.nan, 0.0, 0.0], [-math.inf] * 3])
    impossible, broken, nothing = logprobs(logits, [1, 1, 1], [3, 3, 3])
    assert impossible.logprob == FLOOR
    assert [t for t, _ in impossible.top] == [0, 2, 1]
    assert impossible.top[2][1] == FLOOR
    assert broken.logprob == FLOOR
    assert nothing.top == ((0, FLOOR), (1, FLOOR), (2, FLOOR))


def test_certain_token_is_zero_and_never_positive():
    (entry,) = logprobs(torch.tensor([[100.0, 0.0]]), [0], [2])
    assert entry.logprob == 0.0


def test_more_than_the_vocabulary_is_the_vocabulary():
    (entry,) = logprobs(torch.zeros(1, 4), [2], [20])
    assert len(entry.top) == 4


def test_values_do_not_depend_on_batch_mates():
    logits = torch.randn(6, 50_257, generator=torch.Generator().manual_seed(2)) * 4
    together = logprobs(logits, list(range(6)), [5] * 6)
    assert [logprobs(logits[i : i + 1], [i], [5])[0] for i in range(6)] == together


def test_nothing_asked_is_nothing():
    assert logprobs(torch.zeros(0, 4), [], []) == []


@settings(deadline=None)
@given(n=st.integers(1, 300), seed=st.integers(0, 99))
def test_tree_sum_is_a_sum_and_rows_do_not_meet(n, seed):
    values = torch.rand(5, n, generator=torch.Generator().manual_seed(seed))
    sums = tree_sum(values)
    torch.testing.assert_close(sums, values.sum(-1), rtol=1e-5, atol=1e-6)
    assert torch.equal(tree_sum(values[3:4]), sums[3:4])


def test_weights_are_the_same_bits_for_any_cut_of_the_rows():
    scores = -torch.rand(9, 4999, generator=torch.Generator().manual_seed(3)) * 90
    whole = weights(scores).clone()
    for rows in ([2], [0, 8], [4, 5, 6]):
        assert torch.equal(weights(scores[rows]), whole[rows])
    torch.testing.assert_close(whole, scores.exp(), rtol=1e-6, atol=2e-35)
