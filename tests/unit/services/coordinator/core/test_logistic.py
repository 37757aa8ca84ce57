from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.services.coordinator.core.logistic import Count, Line, fit, sigmoid

PRIOR = Line(1.0, 0.0)


def counted(line: Line, num: float = 1_000.0) -> list[Count]:
    """What many drafts of nine scores come to under a line."""
    return [Count(s / 2, num, num * line.probability(s / 2)) for s in range(9)]


@pytest.mark.parametrize("line", [Line(0.8, -1.0), Line(0.1, 2.0), Line(3.0, -4.0)])
def test_many_labels_outweigh_the_prior(line):
    found = fit(counted(line), PRIOR, 8.0, sign=1)
    assert found == pytest.approx(line, abs=0.06)


def test_without_labels_it_is_the_prior_and_few_move_it_by_little():
    assert fit([], PRIOR, 8.0, sign=1) == PRIOR
    few = fit([Count(2.0, 1.0, 0.0)], PRIOR, 8.0, sign=1)
    assert few.probability(2.0) == pytest.approx(PRIOR.probability(2.0), abs=0.12)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_slope_of_the_other_sign_is_refused_and_the_mean_is_kept(sign):
    counts = counted(Line(-sign * 0.8, sign * 1.5))
    prior = Line(float(sign), 0.0)
    found = fit(counts, prior, 8.0, sign=sign)
    assert found.slope == 0
    mean = sum(c.num_kept for c in counts) / sum(c.num for c in counts)
    assert sigmoid(found.bias) == pytest.approx(mean, abs=0.01)


@given(
    st.lists(
        st.tuples(st.floats(0, 8), st.floats(1e-6, 1e9), st.floats(0, 1)), min_size=1, max_size=17
    ),
    st.tuples(st.floats(-4, 4), st.floats(-8, 8)),
    st.tuples(st.floats(-4, 4), st.floats(-8, 8)),
)
def test_it_is_finite_and_the_same_wherever_it_begins(seen, begin, other):
    counts = [Count(score, num, num * share) for score, num, share in seen]
    found = fit(counts, PRIOR, 16.0, sign=1, begin=Line(*begin))
    again = fit(counts, PRIOR, 16.0, sign=1, begin=Line(*other))
    assert all(map(math.isfinite, found))
    assert found.slope >= 0
    for score, _, _ in seen:
        assert found.probability(score) == pytest.approx(again.probability(score), abs=1e-3)
