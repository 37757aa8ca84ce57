from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.errors import ConfigError
from minedraft.policy_options import PolicyOptions
from minedraft.services.coordinator.core.decider import Decider
from minedraft.types import Mode
from tests.unit.services.coordinator.core.policies.views import known_costs, view_of

OPTIONS = PolicyOptions(num_speculative_tokens_per_batch_size="[[1, 2, 5], [3, 9, 0]]")


def test_it_says_what_it_decided_lately():
    decider = Decider("schedule", OPTIONS)
    assert decider.status().mean_draft_tokens == 0
    decider.choose(view_of(2))
    assert decider.status().mean_draft_tokens == 5
    for _ in range(200):
        decider.choose(view_of(3))
    assert decider.status().mean_draft_tokens < 0.1
    assert (decider.status().name, decider.status().note) == ("schedule", "")


def test_it_says_why_a_policy_does_as_fixed():
    decider = Decider("goodput", OPTIONS)
    decider.choose(view_of(2))
    assert "costs" in decider.status().note
    decider.choose(view_of(2, costs=known_costs()))
    assert decider.status().note == ""


def test_another_policy_begins_anew():
    decider = Decider("schedule", OPTIONS)
    decider.choose(view_of(2))
    decider.set("fixed")
    assert decider.name == "fixed"
    assert decider.status().mean_draft_tokens == 0


@pytest.mark.parametrize(("name", "k"), [("fixed", 8), ("schedule", 5)])
def test_shapes_are_priced_by_what_is_drafted(name, k):
    decider = Decider(name, OPTIONS)
    assert decider.typical_draft_tokens(8) == 8, "nothing was decided yet"
    for _ in range(3):
        decider.choose(view_of(2))
    assert decider.typical_draft_tokens(8) == k
    assert decider.typical_draft_tokens(0) == 0


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (Mode(2, 4, 4, policy="wise"), "policy='wise'"),
        (Mode(2, 4, 4, policy="x" * 10**6), "policy='xxx"),
    ],
)
def test_a_mode_whose_policy_cannot_be_is_refused(mode, said):
    decider = Decider("fixed", OPTIONS)
    decider.check(replace(mode, policy=""), acceptance="rejection", max_draft_tokens=16)
    with pytest.raises(ConfigError, match=said) as err:
        decider.check(mode, acceptance="rejection", max_draft_tokens=16)
    assert len(str(err.value)) < 200
