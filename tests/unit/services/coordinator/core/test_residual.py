from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.services.coordinator.core.residual import MOST_FACTOR, Residual


def observed(*steps: tuple[float, float]) -> Residual:
    residual = Residual()
    for ratio, overlapped in steps:
        residual.observe(ratio, overlapped)
    return residual


def test_at_first_steps_cost_what_the_table_says():
    assert Residual().factor(0) == Residual().factor(1) == 1
    assert Residual(1.2).factor(1) == pytest.approx(1.2)
    assert Residual(1.2).factor(0.5) == pytest.approx(1.2**0.5)


def test_alone_and_overlapped_are_told_apart_where_both_are_seen():
    residual = observed(*[(1.0, 0.0), (1.2, 1.0)] * 200)
    assert residual.factor(0) == pytest.approx(1.0, abs=0.01)
    assert residual.factor(1) == pytest.approx(1.2, abs=0.01)
    assert residual.overlap == pytest.approx(1.2, abs=0.02)


def test_a_step_that_is_overlapped_in_part_counts_for_both():
    residual = observed(*[(1.0, 0.0), (1.2**0.5, 0.5)] * 400)
    assert residual.factor(1) == pytest.approx(1.2, abs=0.02)


def test_a_slower_machine_is_slower_in_the_way_that_was_not_seen_too():
    residual = observed(*[(1.0, 0.0), (1.2, 1.0)] * 20, *[(2.4, 1.0)] * 50)
    assert residual.factor(1) == pytest.approx(2.4, rel=0.01)
    assert 1.4 < residual.factor(0) < 1.8


def test_a_few_trials_at_once_tell_what_overlap_costs_and_say_nothing_of_steps_alone():
    residual = observed(*[(1.0, 0.0)] * 20, *[(1.2, 1.0)] * 3)
    assert residual.factor(1) == pytest.approx(1.2, rel=0.01)
    assert residual.factor(0) == pytest.approx(1.0, abs=0.02)


def test_one_stall_moves_nothing():
    calm = [(1.0, 1.0)] * 10
    assert observed(*calm, (50.0, 1.0), *calm).factor(1) == pytest.approx(1.0)


def test_three_slow_steps_are_no_stall():
    calm = [(1.0, 1.0)] * 10
    assert observed(*calm, *[(2.0, 1.0)] * 3).factor(1) > 1.1


def test_the_table_takes_over_what_is_residual_for_steps_alone():
    residual = observed(*[(2.0, 0.0), (3.0, 1.0)] * 200)
    overlapped = residual.factor(1)
    factor = residual.rest()
    assert factor == pytest.approx(2.0, rel=0.02)
    assert residual.factor(0) == 1
    assert residual.factor(1) * factor == pytest.approx(overlapped)


@given(st.lists(st.tuples(st.floats(1e-15, 1e15), st.floats(0, 1)), max_size=50))
def test_it_stays_bounded_whatever_is_observed(steps):
    residual = observed(*steps)
    for overlapped in (0, 0.3, 1):
        assert 1 / MOST_FACTOR * 0.99 < residual.factor(overlapped) < MOST_FACTOR * 1.01
