from __future__ import annotations

import math

import pytest

from minedraft.plans import Score
from minedraft.services.drafter.proposers.synthetic import (
    MARGIN_AUC,
    SURPRISAL_AUC,
    SyntheticProposer,
    score_of,
)
from minedraft.types import MAX_MARGIN, DebugOptions, RowParams
from tests.draft_world import Drafter, context, drafting, opened, row
from tests.fake_runner import VOCAB, continuation

REFERENCE = (10, 11, 12)


def imposed(drawn, output=(), *, drafts=(), reference=REFERENCE, acceptance=None, coin=0.5):
    proposer = SyntheticProposer(context(), coin=lambda *_: coin)
    return proposer.impose(
        drafting(output, drafts=drafts, debug=DebugOptions(reference, acceptance)), drawn
    )


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_it_is_right_as_often_as_asked(share):
    drafter = Drafter("synthetic")
    reference = tuple(continuation((1, 2, 3), 30))
    drafter.step([row(k=16)], opens=[opened(debug=DebugOptions(reference, share))])
    shift = 0 if share else 1
    assert drafter.drafts() == [(token + shift) % VOCAB for token in reference[:16]]


def test_it_throws_one_coin_per_position_however_often_it_is_asked():
    reference = tuple(continuation((1, 2, 3), 60))
    drafter = Drafter("synthetic")
    opens = [opened(debug=DebugOptions(reference, 0.5))]
    drafter.step([row(k=30)], opens=opens)
    first = drafter.drafts()
    assert 4 < sum(a == b for a, b in zip(first, reference, strict=False)) < 26
    drafter.step([row(base_len=8, new=reference[:5], k=25)])
    assert drafter.drafts() == first[5:]


def test_it_throws_its_coin_for_the_absolute_position():
    asked = []
    proposer = SyntheticProposer(
        context(), coin=lambda seed, position: asked.append((seed, position)) or 0.0
    )
    proposer.impose(drafting((10,), drafts=(11,), debug=DebugOptions(REFERENCE, 0.5)), 3)
    assert asked == [(5, 4)]


@pytest.mark.parametrize(("coin", "want"), [(0.0, 11), (0.69, 11), (0.7, 12), (0.99, 12)])
def test_it_is_right_when_the_coin_falls_under_the_acceptance(coin, want):
    assert imposed(3, (10,), acceptance=0.7, coin=coin).token == want


def test_a_wrong_token_stays_in_the_vocabulary():
    assert imposed(3, reference=(VOCAB - 1,), acceptance=0.0).token == 0


def test_without_a_reference_it_is_a_model():
    drafter = Drafter("synthetic")
    drafter.step([row()], opens=[opened()])
    assert drafter.drafts() == continuation((1, 2, 3), 4)


@pytest.mark.parametrize("acceptance", [None, 0.5])
def test_past_the_reference_it_is_a_model(acceptance):
    assert imposed(3, (10, 11), drafts=(12,), acceptance=acceptance) is None
    assert imposed(3, acceptance=None) is None


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_reference_token_that_the_drafter_does_not_have_is_none(share):
    drafter = Drafter("synthetic")
    drafter.step([row()], opens=[opened(debug=DebugOptions((VOCAB, VOCAB + 9), share))])
    assert drafter.drafts() == continuation((1, 2, 3), 4)


def test_an_imposed_token_is_a_proposal_of_its_own_also_when_it_is_the_drawn_one():
    """What was drawn had no say in it: with the model's q the output's law would shift to it."""
    drawn, given = Drafter(q_width=5), Drafter("synthetic", q_width=5)
    params = RowParams(temperature=1.0, seed=3)
    drawn.step([row()], opens=[opened(params=params)])
    reference = drawn.packets[0].rows[0].token_ids
    given.step([row()], opens=[opened(params=params, debug=DebugOptions(reference, 1.0))])
    sent = given.packets[0].rows[0]
    assert sent.token_ids == reference
    assert sent.q == tuple(((token,), (1.0,)) for token in reference)


@pytest.mark.parametrize(
    ("score", "auc", "most"),
    [(Score.MARGIN, MARGIN_AUC, MAX_MARGIN), (Score.SURPRISAL, 1 - SURPRISAL_AUC, math.inf)],
)
def test_its_scores_know_as_much_of_the_outcome_as_they_say(score, auc, most):
    right, wrong = (
        [score_of((n + 0.5) / 300, score, is_right=is_right) for n in range(300)]
        for is_right in (True, False)
    )
    assert all(0 <= value <= most for value in right + wrong)
    higher = sum((a > b) + (a == b) / 2 for a in right for b in wrong) / 300**2
    assert higher == pytest.approx(auc, abs=0.01)


def test_a_score_is_of_its_position_and_independent_of_the_coin():
    debug = DebugOptions(reference_token_ids=tuple(range(8)), synthetic_acceptance=0.5)
    scores = []
    for coin in (0.1, 0.2, 0.1):
        item = drafting((5,), debug=debug)
        item.score = Score.MARGIN
        proposer = SyntheticProposer(context(), coin=lambda *_, coin=coin: coin)
        scores.append(proposer.impose(item, 3).score)
    assert scores[0] == scores[1] == scores[2], "the coin has a say in it by which side it fell on"
    item.add(5)
    assert proposer.impose(item, 3).score != scores[0]
