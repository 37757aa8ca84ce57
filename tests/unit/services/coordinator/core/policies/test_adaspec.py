from __future__ import annotations

from minedraft.plans import Score
from minedraft.policy_options import PolicyOptions
from minedraft.services.coordinator.core.policies.adaspec import AdaSpec
from tests.unit.services.coordinator.core.policies.views import (
    known_costs,
    view_of,
    without_scores,
)


def decide(policy, view):
    return policy.choose(view).bounded_by(view)


def test_rows_draft_until_their_survival_is_under_the_price():
    found = decide(AdaSpec(PolicyOptions()), view_of(4, costs=known_costs(), rates=[0.8] * 4))
    assert found.num_draft_tokens == [8] * 4
    assert found.score is Score.MARGIN
    assert 0.0 < found.stop_below < 1.0
    assert 0 < found.budget <= 32
    assert found.curves.slopes


def test_the_price_falls_where_drafts_are_cheap():
    dear, cheap = (
        decide(
            AdaSpec(PolicyOptions()),
            view_of(4, costs=known_costs(draft_ms=(ms, 0.1)), rates=[0.8] * 4),
        ).stop_below
        for ms in (6.0, 0.5)
    )
    assert cheap < dear


def test_nothing_is_drafted_where_not_even_a_first_draft_pays():
    costs = known_costs(draft_ms=(30.0, 0.1))
    found = decide(AdaSpec(PolicyOptions()), view_of(4, costs=costs, rates=[0.05] * 4))
    assert found.num_draft_tokens == [0] * 4
    assert found.stop_below == 0


def test_it_does_as_fixed_while_costs_are_unknown_or_no_scores_come():
    policy = AdaSpec(PolicyOptions())
    assert decide(policy, view_of(2)).budget is None
    assert "costs" in policy.note
    assert decide(policy, view_of(2, costs=without_scores(known_costs()))).budget is None
    assert "scores" in policy.note
