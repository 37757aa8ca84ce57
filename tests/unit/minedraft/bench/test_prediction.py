from __future__ import annotations

import pytest

from minedraft.bench.prediction import Legs, psd_over_sd


def test_equal_halves_double_the_throughput_at_equal_batch():
    assert psd_over_sd(Legs(10, 10), Legs(10, 10)) == 2
    assert psd_over_sd(Legs(10, 5), Legs(10, 5)) == 1.5


def test_legs_that_slow_each_other_down_gain_less():
    assert psd_over_sd(Legs(10, 5), Legs(12, 11)) == pytest.approx(15 / 12)
    assert psd_over_sd(Legs(10, 9), Legs(11, 13)) == pytest.approx(19 / 13)


def test_flat_costs_make_two_batches_lose_at_equal_concurrency():
    assert psd_over_sd(Legs(10, 5), Legs(10, 5), num_batches=2) == pytest.approx(0.75)


def test_costs_that_grow_with_the_batch_make_them_win():
    assert psd_over_sd(Legs(20, 10), Legs(10, 5), num_batches=2) == pytest.approx(1.5)


def test_nothing_measured_predicts_nothing():
    assert psd_over_sd(Legs(0, 0), Legs(0, 0)) == 0
    assert psd_over_sd(Legs(1, 1), Legs(0, 0), num_batches=2) == 0
