from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.sim.step_costs import FlatCosts, both


def test_both_durations_are_asked_for():
    durations = both(lambda overlapped: 10 + 5 * overlapped, "verify")
    assert (durations.alone, durations.overlapped) == (10, 15)


@pytest.mark.parametrize("known", [(), (0.0,), (1.0,)])
def test_an_unknown_cost_is_named(known):
    with pytest.raises(ConfigError, match="nothing is known of draft steps"):
        both(lambda overlapped: 1.0 if overlapped in known else None, "draft")


def test_flat_costs_are_flat():
    costs = FlatCosts(7, 3)
    assert costs.verify_ns(1, 1, 1, overlapped=1) == costs.verify_ns(99, 9, 999, overlapped=0) == 7
    assert costs.draft_ns((1,), 1, 1, overlapped=1) == costs.draft_ns((), 9, 9, overlapped=0) == 3
