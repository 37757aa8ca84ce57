from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.selection import (
    MAX_SLOPE,
    NO_CURVES,
    NUM_CLASSES,
    Curves,
    Scored,
    Selection,
    select,
    temperature_class,
)

SLOPE = st.floats(-MAX_SLOPE, MAX_SLOPE, width=32)
CURVES = st.just(NO_CURVES) | st.integers(1, 5).flatmap(
    lambda k: st.builds(
        Curves,
        slopes=st.lists(SLOPE, min_size=k * NUM_CLASSES, max_size=k * NUM_CLASSES).map(tuple),
        biases=st.lists(SLOPE, min_size=k * NUM_CLASSES, max_size=k * NUM_CLASSES).map(tuple),
    )
)
SCORES = st.lists(st.floats(0, 2.0**127, width=32), max_size=6).map(tuple)


@st.composite
def steps(draw):
    lists = draw(st.lists(SCORES, max_size=6))
    rows = [Scored(i, draw(st.integers(0, 2)), scores) for i, scores in enumerate(lists)]
    offsets = draw(st.just(()) | st.tuples(*(SLOPE for _ in rows)))
    budget, floor = draw(st.integers(0, 40)), draw(st.integers(0, 7))
    return rows, Selection(budget, floor, draw(CURVES), offsets)


@given(steps())
def test_the_budget_is_used_up_and_never_exceeded_and_floors_come_first(step):
    rows, selection = step
    chosen = select(rows, selection)
    lengths = [len(row.scores) for row in rows]
    assert sum(chosen) == min(selection.budget, sum(lengths))
    assert all(0 <= n <= length for n, length in zip(chosen, lengths, strict=True))
    floors = [min(selection.floor, length) for length in lengths]
    if sum(floors) <= selection.budget:
        assert all(n >= floor for n, floor in zip(chosen, floors, strict=True))
    else:
        assert all(n <= floor for n, floor in zip(chosen, floors, strict=True))


@given(steps(), st.data())
def test_more_budget_takes_nothing_from_anybody(step, data):
    rows, selection = step
    more = selection.budget + data.draw(st.integers(0, 5))
    richer = Selection(more, selection.floor, selection.curves, selection.offsets)
    pairs = zip(select(rows, selection), select(rows, richer), strict=True)
    assert all(few <= many for few, many in pairs)


@given(steps(), st.data())
def test_a_row_whose_drafts_survive_better_gets_no_less(step, data):
    rows, selection = step
    if not rows:
        return
    index = data.draw(st.integers(0, len(rows) - 1))
    offsets = list(selection.offsets or (0.0 for _ in rows))
    before = select(rows, Selection(selection.budget, 0, selection.curves, tuple(offsets)))
    offsets[index] += data.draw(st.floats(0, MAX_SLOPE))
    after = select(rows, Selection(selection.budget, 0, selection.curves, tuple(offsets)))
    assert after[index] >= before[index]


def test_it_chooses_what_trying_all_prefixes_finds_best():
    curves = Curves((1.5,) * NUM_CLASSES, (-1.0,) * NUM_CLASSES)
    rows = [Scored(0, 0, (2.0, 0.1, 3.0)), Scored(1, 2, (0.5, 4.0)), Scored(2, 1, (1.0, 1.0))]

    def expected(prefixes) -> float:
        total = 0.0
        for row, n in zip(rows, prefixes, strict=True):
            survival = 1.0
            for position, score in enumerate(row.scores[:n]):
                survival *= curves.factor(row.group, position, score)
                total += survival
        return total

    for budget in range(8):
        tried = product(*(range(len(row.scores) + 1) for row in rows))
        best = max(expected(n) for n in tried if sum(n) <= budget)
        assert expected(select(rows, Selection(budget, 0, curves))) == pytest.approx(best)


def test_equals_are_taken_by_row_and_position():
    rows = [Scored(1, 0, (0.0, 0.0)), Scored(0, 0, (0.0, 0.0))]
    assert select(rows, Selection(3)) == [1, 2]


def test_surprisals_rank_by_the_product_of_probabilities():
    rows = [Scored(0, 2, (-math.log(0.9), -math.log(0.5))), Scored(1, 2, (-math.log(0.5),))]
    assert select(rows, Selection(1)) == [1, 0]
    assert select(rows, Selection(2)) == [1, 1]  # 0.5 before 0.9 * 0.5


@pytest.mark.parametrize(("temperature", "group"), [(0, 0), (1e-9, 1), (0.5, 1), (0.51, 2), (2, 2)])
def test_classes_of_temperature(temperature, group):
    assert temperature_class(temperature) == group


def test_positions_past_the_last_one_use_its_curve():
    curves = Curves((0.0,) * 6, (-1.0, 1.0, 0.0, 0.0, 0.0, 2.0))
    assert curves.factor(0, 9, 1.0) == curves.factor(0, 1, 1.0) > 0.5 > curves.factor(0, 0, 1.0)
    assert curves.factor(2, 9, 1.0) == pytest.approx(1 / (1 + math.exp(-2)))
