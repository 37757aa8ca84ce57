from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.services.coordinator.core.acceptance import UNKNOWN, Acceptance


def test_without_drafts_it_is_the_prior():
    assert Acceptance().mean() == UNKNOWN
    assert Acceptance().mean(0.9) == 0.9


@pytest.mark.parametrize(("kept", "refused", "want"), [(4, 0, 1.0), (0, 1, 0.0), (3, 1, 0.75)])
def test_what_is_seen_again_and_again_outweighs_the_prior(kept, refused, want):
    acceptance = Acceptance()
    for _ in range(100):
        acceptance.observe(kept, refused)
    assert acceptance.mean() == pytest.approx(want, abs=0.15)


def test_recent_steps_count_more():
    acceptance = Acceptance()
    for _ in range(20):
        acceptance.observe(4, 0)
    before = acceptance.mean()
    for _ in range(20):
        acceptance.observe(0, 1)
    assert acceptance.mean() < before / 2


@given(st.lists(st.tuples(st.integers(0, 32), st.integers(0, 1))), st.floats(0, 1))
def test_it_is_a_probability(steps, prior):
    acceptance = Acceptance()
    for kept, refused in steps:
        acceptance.observe(kept, refused)
    assert 0 <= acceptance.mean(prior) <= 1
