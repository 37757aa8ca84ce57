from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.services.coordinator.core.solver import (
    LEAST_SURVIVAL,
    Legs,
    best_k,
    ranked,
    solve,
    take,
)

MS = 1_000_000


class Lines:
    """A verify leg and a draft leg that grow straight; what a draft costs may be 0."""

    def __init__(self, verify=(20.0, 0.5), draft=(2.0, 0.1)) -> None:
        self.verify, self.draft = verify, draft

    def verify_ns(self, num_tokens, num_rows, context, *, overlapped):
        del num_rows, context, overlapped
        return MS * (self.verify[0] + self.verify[1] * num_tokens)

    def draft_ns(self, rows_per_depth, num_catch_up_tokens, context, *, overlapped, source=0):
        del num_catch_up_tokens, context, overlapped, source
        return MS * sum(self.draft[0] + self.draft[1] * rows for rows in rows_per_depth)


class Unknown(Lines):
    def verify_ns(self, *_args, **_kwargs):
        return None


def legs(num_rows, costs=None, *, num_batches=1, num_drafters=1) -> Legs:
    return Legs(costs or Lines(), 1, num_rows, 0, num_batches, num_drafters)


def geometric(*chances, most=8):
    return [[chance**position for position in range(1, most + 1)] for chance in chances]


survivals = st.lists(
    st.lists(st.floats(0, 1), max_size=8).map(
        lambda factors: list(itertools.accumulate(factors, lambda a, b: a * b))
    ),
    min_size=1,
    max_size=12,
)
hostile = st.lists(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=8), min_size=1, max_size=8
)


@given(rows=survivals, num_batches=st.integers(1, 3), last=st.none() | st.integers(0, 99))
@settings(deadline=None, max_examples=50)
def test_rows_get_prefixes_within_what_they_may_and_the_budget_is_no_larger(
    rows, num_batches, last
):
    found = solve(rows, legs(len(rows), num_batches=num_batches), last_budget=last)
    assert all(length <= len(row) for length, row in zip(found.lengths, rows, strict=True))
    assert 0 <= found.budget <= sum(found.lengths)
    assert found.price > 0
    if num_batches == 1:
        assert sum(found.lengths) == found.budget, "one batch drafts nothing that it cannot verify"


@given(rows=hostile, num_batches=st.integers(1, 2))
@settings(deadline=None, max_examples=50)
def test_numbers_that_are_no_survivals_move_nothing_but_lengths(rows, num_batches):
    found = solve(rows, legs(len(rows), num_batches=num_batches))
    assert all(0 <= n <= len(row) for n, row in zip(found.lengths, rows, strict=True))
    assert math.isfinite(found.price)


@given(rows=survivals, budget=st.integers(0, 40))
@settings(deadline=None, max_examples=50)
def test_what_is_taken_is_a_prefix_and_grows_with_the_budget(rows, budget):
    order = ranked(rows)
    fewer, more = take(order[:budget], len(rows)), take(order[: budget + 1], len(rows))
    assert sum(fewer) <= budget
    assert all(a <= b for a, b in zip(fewer, more, strict=True))
    positions = [position for minus, row, position in order if row == 0]
    assert positions == sorted(positions), "a draft comes after those before it"


@given(rows=survivals, budget=st.integers(0, 40), which=st.integers(0, 11))
@settings(deadline=None, max_examples=50)
def test_a_row_that_is_likelier_gets_no_less(rows, budget, which):
    row = which % len(rows)
    better = [*rows]
    better[row] = [(1 + each) / 2 for each in rows[row]]
    before = take(ranked(rows)[:budget], len(rows))[row]
    assert take(ranked(better)[:budget], len(rows))[row] >= before


@given(rows=survivals)
@settings(deadline=None, max_examples=50)
def test_no_other_budget_of_the_same_order_is_better(rows):
    """With sizes that are all measured, below 16 tokens, the walk is exhaustive."""
    here = legs(1)
    found = solve(rows[:1], here)
    order = ranked(rows[:1])
    for num in range(len(order) + 1):
        depths = [1] * num
        rate = (1 - sum(minus for minus, _, _ in order[:num])) / here.step_ns(num, depths)
        assert rate <= found.price * (1 + 1e-9)


def test_likely_rows_draft_long_and_unlikely_ones_hardly():
    found = solve(geometric(0.9, 0.9, 0.3, 0.3), legs(4))
    assert found.lengths[0] == found.lengths[1] > 3
    assert max(found.lengths[2:]) <= 2


def test_nothing_is_drafted_where_it_does_not_pay():
    found = solve(geometric(0.1, 0.1), legs(2, Lines(verify=(1.0, 1.0), draft=(10.0, 1.0))))
    assert found.lengths == [0, 0]
    assert (found.budget, found.threshold) == (0, 1.0)


def test_two_batches_draft_what_the_verify_leg_hides():
    rows = geometric(0.6, 0.6)
    alone = solve(rows, legs(2, Lines(verify=(20.0, 1.0), draft=(4.0, 0.1))))
    both = solve(rows, legs(2, Lines(verify=(20.0, 1.0), draft=(4.0, 0.1)), num_batches=2))
    assert sum(both.lengths) > sum(alone.lengths)
    here = legs(2, Lines(verify=(20.0, 1.0), draft=(4.0, 0.1)), num_batches=2)
    depths = [sum(n > d for n in both.lengths) for d in range(max(both.lengths))]
    verify, draft = here.ns(both.budget, depths)
    assert draft <= verify


def test_a_slo_shrinks_the_budget_and_without_one_that_keeps_it_the_fastest_is_taken():
    rows, here = geometric(0.9, 0.2), legs(2, Lines(verify=(10.0, 4.0), draft=(0.1, 0.0)))
    free = solve(rows, here)
    tight = solve(rows, here, slo_ns=20 * MS)
    assert 0 <= tight.budget < free.budget
    assert here.step_ns(tight.budget, [1] * tight.budget) <= 20 * MS * 1.2
    hopeless = solve(rows, here, slo_ns=1.0)
    assert hopeless.budget <= tight.budget


def test_a_budget_stays_for_less_than_a_row_of_drafts():
    rows, here = geometric(*[0.7] * 8), legs(8, Lines(verify=(200.0, 0.5)))
    best = solve(rows, here).budget
    assert solve(rows, here, last_budget=best - 1).budget == best - 1
    assert solve(rows, here, last_budget=0).budget == best


def test_what_nobody_expects_is_left_out():
    assert ranked([[LEAST_SURVIVAL / 2, 1.0]]) == []


def test_nothing_is_solved_without_costs():
    assert solve(geometric(0.5), legs(1, Unknown())) is None
    assert best_k([0.5], [1], legs(1, Unknown())) is None


@pytest.mark.parametrize(("chance", "wanted"), [(0.05, 0), (0.95, 8)])
def test_one_k_for_all_follows_acceptance(chance, wanted):
    here = legs(8, Lines(verify=(30.0, 0.5), draft=(3.0, 0.1)))
    assert best_k(geometric(chance)[0], [8] * 8, here) == wanted


def test_one_k_for_all_is_the_best_of_all_not_the_first_peak():
    class Steps(Lines):
        """Sizes up to 12 and up to 20 cost the same, as with graphs."""

        def verify_ns(self, num_tokens, num_rows, context, *, overlapped):
            del num_rows, context, overlapped
            return MS * (20 if num_tokens <= 4 else 30)

    here = legs(4, Steps(draft=(0.0, 0.0)))
    assert best_k(geometric(0.9)[0], [8] * 4, here) == 8


def test_callers_that_want_less_count_for_less():
    assert best_k([0.9, 0.8], [1, 0], legs(2)) <= 1
