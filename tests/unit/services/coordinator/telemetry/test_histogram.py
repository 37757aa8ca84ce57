from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.services.coordinator.telemetry import histogram as module
from minedraft.services.coordinator.telemetry.histogram import Histogram

BOUNDS = (1.0, 2.0, 5.0)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 5.0, 7.0])))
def test_a_bucket_counts_the_values_up_to_its_bound(values):
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    expected = [sum(value <= bound for value in values) for bound in BOUNDS]
    assert histogram.cumulative() == [*expected, len(values)]
    assert histogram.count == len(values)
    assert histogram.total == pytest.approx(sum(values))


def test_a_copy_stays_as_it_is():
    histogram = Histogram(BOUNDS)
    histogram.observe(1.0)
    same = histogram.copy()
    histogram.observe(3.0)
    assert (same.cumulative(), same.total) == ([1, 1, 1, 1], 1.0)
    assert histogram.cumulative() == [1, 1, 2, 2]


@pytest.mark.parametrize("name", ["TTFT_S", "TOKEN_S", "REQUEST_S", "TOKENS", "ROWS", "LAG_S"])
def test_bounds_increase(name):
    bounds = getattr(module, name)
    assert list(bounds) == sorted(set(bounds))


def test_sizes_have_buckets_of_1_2_and_5():
    assert module.TOKENS[:7] == (1, 2, 5, 10, 20, 50, 100)
    assert module.TOKENS[-1] == 1_000_000
