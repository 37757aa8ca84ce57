from __future__ import annotations

from minedraft.plans import Score
from minedraft.policy_options import PolicyOptions
from minedraft.services.coordinator.core.draft_history import DraftHistory, Waiting
from minedraft.services.coordinator.core.policies.dspark import DSpark
from tests.unit.services.coordinator.core.policies.views import (
    SOURCE,
    known_costs,
    view_of,
    without_scores,
)

COSTS = known_costs(verify_ms=(20.0, 1.0))


def decide(policy, view):
    return policy.choose(view).bounded_by(view)


def with_last_scores(view, score):
    for each in view.members:
        each.history = DraftHistory()
        each.history.wait(Waiting(SOURCE, 50, Score.MARGIN, (score,) * 8))
    return view


def test_all_rows_draft_k_and_the_last_scores_set_the_budget():
    low, high = (
        decide(DSpark(PolicyOptions()), with_last_scores(view_of(6, costs=COSTS), score))
        for score in (0.0, 4.0)
    )
    assert low.num_draft_tokens == high.num_draft_tokens == [8] * 6
    assert 0 <= low.budget < high.budget <= 48
    assert high.score is Score.MARGIN


def test_before_the_first_scores_the_forecast_sets_it():
    found = decide(DSpark(PolicyOptions()), view_of(6, costs=COSTS, rates=[0.9] * 6))
    assert found.budget > 6


def test_it_does_as_fixed_while_costs_are_unknown_or_no_scores_come():
    policy = DSpark(PolicyOptions())
    assert decide(policy, view_of(2)).budget is None
    assert "costs" in policy.note
    assert decide(policy, view_of(2, costs=without_scores(known_costs()))).budget is None
    assert "scores" in policy.note
