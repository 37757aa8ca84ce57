from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.services.coordinator.core.durations import Durations


def learned(*steps: tuple[int, float]) -> Durations:
    durations = Durations()
    for size, duration_ns in steps:
        durations.observe(size, duration_ns)
    return durations


def test_nothing_is_known_at_first_and_of_steps_without_a_size():
    assert learned().estimate(8) is None
    assert learned((0, 5.0)).estimate(8) is None


def test_between_two_sizes_a_duration_is_on_the_line():
    durations = learned((8, 100.0), (16, 300.0))
    assert [durations.estimate(size) for size in (8, 12, 16)] == [100.0, 200.0, 300.0]


def test_beyond_the_largest_it_grows_with_the_size_and_below_the_smallest_it_stays():
    durations = learned((8, 100.0), (16, 300.0))
    assert durations.estimate(32) == 600.0
    assert durations.estimate(1) == 100.0


def test_recent_steps_of_a_size_move_its_mean():
    durations = learned((8, 100.0), *[(8, 200.0)] * 100)
    assert durations.estimate(8) == pytest.approx(200.0, rel=0.01)


def test_sizes_of_one_power_of_two_share_a_mean():
    durations = learned((9, 100.0), (15, 100.0))
    assert len(durations._means) == 1


@given(
    st.lists(st.tuples(st.integers(1, 2**20), st.integers(0, 2**62)), min_size=1, max_size=30),
    st.integers(1, 2**21),
    st.integers(1, 2**21),
)
def test_a_larger_step_never_takes_less(steps, one, other):
    durations = learned(*steps)
    small, large = durations.estimate(min(one, other)), durations.estimate(max(one, other))
    assert small is not None
    assert large is not None
    assert small <= large * (1 + 1e-9)
