from __future__ import annotations

import pytest

from minedraft.bench import prediction


def test_equal_halves_double_the_throughput_at_equal_batch():
    assert prediction.psd_over_sd(10, 10) == 2
    assert prediction.psd_over_sd(10, 5) == 1.5


def test_flat_costs_make_two_batches_lose_at_equal_concurrency():
    assert prediction.psd_over_sd_2m(10, 5, 10, 5) == pytest.approx(0.75)


def test_costs_that_grow_with_the_batch_make_them_win():
    assert prediction.psd_over_sd_2m(10, 5, 20, 10) == pytest.approx(1.5)


def test_nothing_measured_predicts_nothing():
    assert prediction.psd_over_sd(0, 0) == 0
    assert prediction.psd_over_sd_2m(0, 0, 1, 1) == 0
