from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.services.coordinator.core.cost_table import MAX_SIZE, CostTable, bin_of

SIZES = st.integers(0, 2 * MAX_SIZE)
OBSERVED = st.tuples(
    SIZES, st.integers(0, 1024), st.integers(0, 2**24), st.integers(0, 2**62), st.booleans()
)


def learned(*passes: tuple[int, float], times: int = 1) -> CostTable:
    table = CostTable()
    for size, ns in passes * times:
        table.observe(size, 1, 0, ns)
    return table


def test_nothing_is_known_at_first_and_of_passes_without_a_size_or_a_time():
    assert learned().estimate(8, 1, 0) is None
    assert learned((0, 5.0), (8, 0.0)).estimate(8, 1, 0) is None


def test_between_two_sizes_a_cost_is_on_the_line():
    table = learned((8, 100.0), (16, 300.0))
    assert [table.estimate(size, 1, 0) for size in (8, 12, 16)] == pytest.approx([100, 200, 300])


def test_beyond_the_largest_it_goes_on_as_straight_and_below_the_smallest_it_stays():
    table = learned((8, 100.0), (16, 300.0))
    assert table.estimate(32, 1, 0) == pytest.approx(700.0)
    assert table.estimate(1, 1, 0) == pytest.approx(100.0)
    assert learned((8, 100.0)).estimate(32, 1, 0) == pytest.approx(400.0), "nothing else to go by"


def test_recent_passes_of_a_size_move_its_mean():
    table = learned((8, 100.0), *[(8, 110.0)] * 100)
    assert table.estimate(8, 1, 0) == pytest.approx(110.0, rel=0.01)


def test_sizes_that_differ_little_share_a_bin_and_small_ones_do_not():
    assert len(learned((100, 5.0), (103, 5.0)).bins) == 1
    assert [bin_of(size) for size in (1, 2, 15, 16, 17, 18)] == [1, 2, 15, 16, 16, 18]
    assert len({bin_of(size) for size in range(1, 2 * MAX_SIZE, 7)}) < 160, "bounded"


def test_what_costs_less_though_it_is_larger_is_pooled_with_its_neighbour():
    table = learned((8, 100.0), (16, 81.0), times=8)
    assert table.estimate(8, 1, 0) == pytest.approx(table.estimate(16, 1, 0))
    assert table.estimate(8, 1, 0) == pytest.approx(90.0), "the mean of the logarithms"


def test_more_context_costs_its_slope_once_it_is_known():
    table = CostTable()
    table.observe(8, 8, 1_000, 2_000)
    assert table.estimate(8, 8, 100_000) == pytest.approx(2_000), "not known yet"
    chance = random.Random(1)
    for _ in range(300):
        context = chance.randrange(1_000, 4_000)
        table.observe(8, 8, context, 1_000 + context)
    assert table.context_slope.ns == pytest.approx(1.0, rel=0.05)
    assert table.estimate(8, 8, 8_000) == pytest.approx(9_000, rel=0.05)
    assert table.estimate(16, 16, 4_000) > 5_000, "a slope holds for all sizes"


def test_more_rows_of_the_same_tokens_cost_their_slope_once_it_is_known():
    table = CostTable()
    for rows in [4, 16] * 100:
        table.observe(16, rows, 0, 1_000 + 50 * rows)
    assert table.estimate(16, 16, 0) == pytest.approx(1_800, rel=0.03)
    assert table.estimate(16, 4, 0) == pytest.approx(1_200, rel=0.03)


def test_a_prefill_counts_only_for_sizes_of_which_nothing_else_is_known():
    table = CostTable()
    table.observe(64, 1, 0, 500, is_rough=True)
    assert table.estimate(64, 1, 0) == pytest.approx(500)
    assert not table.knows(64)
    table.observe(64, 16, 0, 900)
    table.observe(64, 1, 0, 500, is_rough=True)
    assert table.estimate(64, 16, 0) == pytest.approx(900)
    assert table.knows(64)


# -- stalls ---------------------------------------------------------------------------------


def test_one_stall_hardly_moves_a_known_size():
    table = learned((8, 100.0), times=20)
    table.observe(8, 1, 0, 10_000.0)
    assert table.estimate(8, 1, 0) < 103


def test_a_stall_that_comes_first_is_forgotten_with_the_second_pass():
    table = learned((8, 10_000.0), (8, 100.0))
    assert table.estimate(8, 1, 0) == pytest.approx(100.0)


def test_a_stall_that_comes_first_is_bounded_by_what_a_larger_size_costs():
    table = learned((16, 100.0), times=10)
    table.observe(8, 1, 0, 10_000.0)
    assert table.estimate(8, 1, 0) < 110
    assert table.estimate(16, 1, 0) < 110


# -- whatever is observed -------------------------------------------------------------------


@given(
    st.lists(OBSERVED, max_size=40),
    st.lists(st.tuples(SIZES, st.integers(0, 2048), st.integers(0, 2**25)), min_size=2, max_size=2),
)
def test_more_of_anything_never_costs_less(observed, asked):
    table = CostTable()
    for size, rows, context, ns, is_rough in observed:
        table.observe(size, rows, context, ns, is_rough=is_rough)
    small = table.estimate(*(min(pair) for pair in zip(*asked, strict=True)))
    large = table.estimate(*(max(pair) for pair in zip(*asked, strict=True)))
    assert (small is None) == (large is None) == (not table.bins)
    if small is not None and large is not None:
        assert 0 < small <= large * (1 + 1e-9)


@settings(max_examples=25)
@given(
    st.integers(0, 2**32),
    st.floats(1e5, 1e8),
    st.floats(0, 1e6),
    st.sets(st.sampled_from([1, 2, 5, 8, 10, 16, 20, 40, 80, 160]), min_size=2),
)
def test_it_converges_on_a_table_with_ten_percent_of_noise(seed, base, rise, sizes):
    table, chance = CostTable(), random.Random(seed)
    for _ in range(60):
        for size in sizes:
            ns = (base + rise * size) * chance.lognormvariate(0, 0.1)
            table.observe(size, size, 0, ns * (20 if chance.random() < 0.02 else 1))
    for size in sizes:
        assert table.estimate(size, size, 0) == pytest.approx(base + rise * size, rel=0.12)


def test_the_curve_of_a_size_seen_often_follows_every_fourth_step():
    table = CostTable()
    for _ in range(20):
        table.observe(8, 2, 100, 1000.0)
    before = table.estimate(8, 2, 100)
    estimates = []
    for _ in range(4):
        table.observe(8, 2, 100, 1200.0)
        estimates.append(table.estimate(8, 2, 100))
    assert estimates[:1] == [before]
    assert before < estimates[-1] <= 1200.0
    assert len(set(estimates)) == 2, "fitted once in four steps"
