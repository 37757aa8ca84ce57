from __future__ import annotations

from minedraft.policy_options import PolicyOptions
from minedraft.services.coordinator.core.answers import Answer
from minedraft.services.coordinator.core.policies.goodput import PROBE_STEPS, Goodput
from tests.unit.services.coordinator.core.policies.views import SOURCE, known_costs, view_of


def k_of(policy: Goodput, view) -> int:
    (k,) = set(policy.choose(view).bounded_by(view).num_draft_tokens)
    return k


def test_it_does_as_fixed_while_costs_are_unknown_and_says_so():
    policy, view = Goodput(PolicyOptions()), view_of(4)
    assert k_of(policy, view) == 8
    assert "costs" in policy.note


def test_k_falls_with_the_size_of_the_batch():
    costs = known_costs(verify_ms=(20.0, 1.0), draft_ms=(1.0, 0.1))
    few, many = (k_of(Goodput(PolicyOptions()), view_of(n, costs=costs)) for n in (1, 60))
    assert few > many


def test_a_drafter_that_is_hardly_ever_right_drafts_nothing_but_a_probe():
    policy, view = Goodput(PolicyOptions()), view_of(4, costs=known_costs(draft_ms=(10.0, 0.1)))
    answer = Answer([], num_drafts=1, num_accepted_tokens=1, num_refused_tokens=99)
    for _ in range(99):
        view.estimator.verified(SOURCE, answer)
    ks = [k_of(policy, view) for _ in range(2 * PROBE_STEPS)]
    assert ks.count(0) == 2 * PROBE_STEPS - 2
    assert ks.count(1) == 2


def test_without_a_drafter_there_is_nothing_to_decide():
    view = view_of(2, k=0, costs=known_costs())
    assert k_of(Goodput(PolicyOptions()), view) == 0
