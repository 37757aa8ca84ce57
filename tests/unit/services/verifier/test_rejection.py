from __future__ import annotations

import math

import pytest
import torch

from minedraft.model.sampling import BROKEN, SamplingRow
from minedraft.services.verifier.acceptance import AcceptItem, accept
from minedraft.types import Acceptance, RowParams
from tests.chi_square import assert_drawn_from
from tests.toy_pair import PROMPT, Toy, open_rows, plain, verify

TARGET = Toy()
N = 3000


def judge(drafts, q, params=None, logits=None):
    params = params or RowParams(temperature=1.0, seed=3)
    logits = torch.zeros(len(drafts) + 1, 8) if logits is None else logits
    row = SamplingRow(params, PROMPT)
    return accept(logits, [AcceptItem(row, drafts, q)], Acceptance.REJECTION)[0]


def test_draft_from_the_very_distribution_of_the_target_always_stands():
    for seed in range(200):
        q = [(tuple(range(8)), (0.125,) * 8)] * 3
        outcome = judge([1, 7, 0], q, RowParams(temperature=1.0, seed=seed))
        assert outcome.num_accepted == 3


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("greedy", [True, False])
def test_logits_that_are_no_distribution_are_an_end_only_where_they_are_reached(place, greedy):
    q = [(tuple(range(8)), (0.125,) * 8)] * 2
    params = RowParams(temperature=0.0 if greedy else 1.0, seed=3, logprobs=1)
    logits = torch.zeros(3, 8)
    logits[[0, 1, 2], [1, 7, 4]] = 50.0
    logits[place, 5] = math.nan
    outcome = judge([1, 7], q, params, logits)
    assert outcome.token_ids == ([1, 7][:place] or [BROKEN])  # as far as without drafts
    assert outcome.num_accepted == max(place - 1, 0)
    assert outcome.is_broken == (place == 0)
    assert len(outcome.logprobs or ()) == place
    outcome = judge([2, 7], q, params, logits)  # the first draft falls
    assert outcome.is_broken == (place == 0)
    assert outcome.token_ids == ([BROKEN] if place == 0 else [1])


def test_draft_the_target_rules_out_never_stands_nor_comes_back():
    logits = torch.zeros(2, 8)
    logits[:, 4] = -math.inf
    for seed in range(200):
        outcome = judge([4], [((4, 5), (0.5, 0.5))], RowParams(temperature=1.0, seed=seed), logits)
        assert outcome.num_accepted == 0
        assert outcome.token_ids != [4]


def test_token_after_a_rejection_comes_from_the_remainder_only():
    """p uniform over 8, q on tokens 0 and 1: what is left has neither."""
    tokens = []
    for seed in range(400):
        outcome = judge([0], [((0, 1), (0.5, 0.5))], RowParams(temperature=1.0, seed=seed))
        if outcome.num_accepted == 0:
            tokens.append(outcome.token_ids[0])
    assert_drawn_from([len(tokens), 400 - len(tokens)], [0.75, 0.25])
    assert_drawn_from([tokens.count(t) for t in range(8)], [0, 0] + [1 / 6] * 6)


BAD_Q = [
    None,
    (),
    [],
    [((), ())],
    [((0, 1), (0.5,))],
    [((0, 1), (0.9, 0.9))],
    [((0, 1), (0.1, 0.1))],
    [((0, 1), (1.5, -0.5))],
    [((0, 1), (math.nan, 0.5))],
    [((0, 1), (math.inf, 0.5))],
    [((0, 0), (0.5, 0.5))],
    [((0, 8), (0.5, 0.5))],
    [((0, -1), (0.5, 0.5))],
    [((1, 2), (0.5, 0.5))],
    [((0, 1), (0.0, 1.0))],
]


@pytest.mark.parametrize("q", BAD_Q, ids=str)
def test_unusable_q_is_judged_by_the_targets_own_sample(q):
    for seed in range(30):
        params = RowParams(temperature=1.0, seed=seed)
        outcome = judge([0], q, params)
        coupled = plain(Toy(spread=0.0), [params], 2)[0]
        expected = coupled if coupled[0] == 0 else coupled[:1]
        assert outcome.token_ids == expected


@pytest.mark.parametrize("q", [None, [((0, 1), (math.nan, 0.5))], [((0,), (1.0,))]], ids=str)
def test_law_of_the_target_holds_for_bad_q_and_for_deterministic_drafts(q):
    rows = open_rows([RowParams(temperature=1.0, seed=s) for s in range(N)])
    verify(TARGET, rows, [[0]] * N, [q] * N, Acceptance.REJECTION)
    counts = [0] * 8
    for row in rows:
        counts[row.output_token_ids[0]] += 1
    assert_drawn_from(counts, torch.softmax(TARGET.logits([PROMPT])[0].double(), -1).tolist())


def test_bad_q_of_one_draft_leaves_the_others_to_theirs():
    good = ((*range(8),), (0.125,) * 8)
    accepted = {
        judge([1, 2, 3], [good, None, good], RowParams(temperature=1.0, seed=s)).num_accepted
        for s in range(100)
    }
    assert accepted == {1, 3}  # the first always stands, and with the second the third


def test_repeating_the_step_repeats_the_outcome():
    q = [((0, 1), (0.5, 0.5))] * 2
    outcomes = [judge([0, 1], q, RowParams(temperature=1.0, seed=11)) for _ in range(3)]
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_rounding_of_q_is_forgiven():
    third = torch.tensor(1 / 3).item()
    q = [((0, 1, 2), (third, third, third))]
    params = [RowParams(temperature=1.0, seed=s) for s in range(400)]
    num_standing = sum(judge([0], q, row).num_accepted for row in params)
    # p / q; by the target's own sample it would be 1/8.
    assert_drawn_from([num_standing, 400 - num_standing], [3 / 8, 5 / 8])
