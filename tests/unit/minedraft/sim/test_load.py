from __future__ import annotations

import statistics
from itertools import pairwise

import pytest

from minedraft.errors import ConfigError
from minedraft.sim.load import MAX_REQUESTS, steady


def test_all_come_at_once_without_a_rate():
    load = steady(5, 10, 20)
    assert {arrival.arrival_ns for arrival in load.arrivals} == {0}
    assert [(a.num_prompt_tokens, a.max_tokens) for a in load.arrivals] == [(10, 20)] * 5


def test_poisson_arrivals_have_the_rate_and_its_spread():
    times = [arrival.arrival_ns for arrival in steady(4000, 1, 1, rate=50.0).arrivals]
    gaps_ms = [(b - a) / 1e6 for a, b in pairwise(times)]
    assert statistics.fmean(gaps_ms) == pytest.approx(20, rel=0.05)
    assert statistics.stdev(gaps_ms) == pytest.approx(20, rel=0.1)


def test_a_share_of_the_callers_leaves_within_the_output():
    arrivals = steady(2000, 1, 30, abort_share=0.25).arrivals
    leave = [arrival.abort_after for arrival in arrivals if arrival.abort_after is not None]
    assert len(leave) == pytest.approx(500, rel=0.15)
    assert (min(leave), max(leave)) == (1, 30)


def test_the_seed_decides_all():
    assert steady(50, 1, 9, rate=3.0, abort_share=0.5, seed=4) == steady(
        50, 1, 9, rate=3.0, abort_share=0.5, seed=4
    )
    assert steady(50, 1, 9, rate=3.0, seed=4) != steady(50, 1, 9, rate=3.0, seed=5)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_requests": MAX_REQUESTS + 1}, "requests="),
        ({"rate": 0.0}, "rate="),
        ({"rate": float("nan")}, "rate="),
        ({"rate": float("inf")}, "rate="),
        ({"abort_share": 1.5}, "aborts="),
    ],
)
def test_absurd_sizes_are_refused(options, named):
    with pytest.raises(ConfigError, match=named):
        steady(**{"num_requests": 1, "num_prompt_tokens": 1, "max_tokens": 1, **options})
