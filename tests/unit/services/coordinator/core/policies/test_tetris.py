from __future__ import annotations

import pytest

from minedraft.plans import Score
from minedraft.policy_options import PolicyOptions
from minedraft.selection import NO_CURVES
from minedraft.services.coordinator.core.policies.tetris import Tetris
from tests.unit.services.coordinator.core.policies.views import (
    known_costs,
    view_of,
    without_scores,
)


def decision_of(view, **options):
    return Tetris(PolicyOptions(**options)).choose(view).bounded_by(view)


@pytest.mark.parametrize(("capacity", "budget"), [(0, 4 * 5), (7, 7)])
def test_rows_draft_some_more_and_k_per_row_or_the_capacity_is_verified(capacity, budget):
    """The view has k = 5 and 3 more."""
    found = decision_of(view_of(4), tetris_capacity=capacity, tetris_extra_proposals=3)
    assert found.num_draft_tokens == [8] * 4
    assert (found.score, found.budget, found.curves) == (Score.SURPRISAL, budget, NO_CURVES)


def test_without_scores_it_drafts_k():
    policy = Tetris(PolicyOptions(tetris_extra_proposals=3))
    view = view_of(4, costs=without_scores(known_costs()))
    found = policy.choose(view).bounded_by(view)
    assert found.num_draft_tokens == [5] * 4
    assert (found.score, found.budget) == (Score.NONE, None)
    assert "scores" in policy.note


def test_a_batch_that_drafts_nothing_has_no_budget():
    found = decision_of(view_of(2, k=0))
    assert (found.num_draft_tokens, found.budget) == ([0, 0], None)
