from __future__ import annotations

from minedraft.plans import Score
from minedraft.policy_options import PolicyOptions
from minedraft.services.coordinator.core.lengths import KEPT_STEPS, PROBE_STEPS
from minedraft.services.coordinator.core.policies.wcs import LEARN_STEPS, Wcs
from tests.unit.services.coordinator.core.policies.views import (
    known_costs,
    member,
    view_of,
    without_scores,
)

COSTS = known_costs()


def decide(policy, view):
    return policy.choose(view).bounded_by(view)


def test_who_is_often_right_drafts_long():
    found = decide(Wcs(PolicyOptions()), view_of(4, costs=COSTS, rates=[0.95, 0.95, 0.2, 0.2]))
    assert min(found.num_draft_tokens[:2]) > 3
    assert max(found.num_draft_tokens[2:]) <= 1
    assert found.budget is None, "one batch drafts what it verifies"


def test_scores_are_asked_for_where_something_is_chosen_and_now_and_then():
    policy = Wcs(PolicyOptions())
    scores = [decide(policy, view_of(4, costs=COSTS)).score for _ in range(2 * LEARN_STEPS)]
    assert scores.count(Score.MARGIN) == 2
    assert scores.count(Score.NONE) == 2 * (LEARN_STEPS - 1)


def test_two_batches_draft_more_than_they_verify():
    costs = known_costs(draft_ms=(0.2, 0.01))
    found = decide(Wcs(PolicyOptions()), view_of(8, costs=costs, num_batches=2))
    assert sum(found.num_draft_tokens) > found.budget > 0
    assert found.score is Score.MARGIN
    assert found.curves.slopes


def test_it_does_as_fixed_while_costs_are_unknown_and_asks_for_scores():
    policy, view = Wcs(PolicyOptions()), view_of(3)
    found = decide(policy, view)
    assert found.num_draft_tokens == [8] * 3
    assert (found.score, found.budget) == (Score.MARGIN, None)
    assert "costs" in policy.note


def test_it_does_as_fixed_where_the_drafter_sends_no_scores():
    policy, view = Wcs(PolicyOptions()), view_of(3, costs=without_scores(known_costs()))
    found = decide(policy, view)
    assert found.num_draft_tokens == [8] * 3
    assert found.budget is None
    assert "scores" in policy.note


def test_a_row_that_drafts_nothing_makes_one_draft_now_and_then():
    policy, view = Wcs(PolicyOptions()), view_of(1, costs=COSTS, rates=[0.01])
    ks = [decide(policy, view).num_draft_tokens[0] for _ in range(3 * PROBE_STEPS)]
    assert set(ks) == {0, 1}
    assert ks.count(1) == 3


def test_a_row_that_joins_drafts_what_its_forecast_is_worth():
    policy, view = Wcs(PolicyOptions()), view_of(16, costs=COSTS)
    decide(policy, view)
    view.members = [*view.members[:-1], member(99, rate=0.02)]
    assert decide(policy, view).num_draft_tokens[-1] == 0
    view.members = [*view.members[:-1], member(100, rate=0.99)]
    assert decide(policy, view).num_draft_tokens[-1] >= max(
        decide(policy, view).num_draft_tokens[:-1]
    )


def test_a_solution_is_kept_for_some_steps():
    policy, view = Wcs(PolicyOptions()), view_of(16, costs=COSTS, rates=[0.9] * 16)
    long = decide(policy, view).num_draft_tokens
    for each in view.members:
        each.acceptance = member(1, rate=0.1).acceptance
    for _ in range(KEPT_STEPS - 1):
        assert decide(policy, view).num_draft_tokens == long
    assert sum(decide(policy, view).num_draft_tokens) < sum(long)


def test_a_slo_shrinks_the_budget():
    costs = known_costs(verify_ms=(10.0, 2.0), draft_ms=(0.1, 0.0))
    view = view_of(8, costs=costs, rates=[0.95] * 7 + [0.05])
    free = decide(Wcs(PolicyOptions()), view)
    tight = decide(Wcs(PolicyOptions(tpot_slo_ms=45.0)), view)
    assert 0 < sum(tight.num_draft_tokens) < sum(free.num_draft_tokens)
