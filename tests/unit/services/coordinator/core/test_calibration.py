from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.plans import MAX_DRAFT_TOKENS, Score
from minedraft.selection import NO_CURVES, NUM_CLASSES
from minedraft.services.coordinator.core.calibration import REFIT_LABELS, Calibration
from tests.drafts_of import Drafter

EASY, HARD = Drafter(0.5, 0.2, 0.0, -0.2), Drafter(-3.0, -3.2, -3.4, -3.6)


def learn(known: Calibration, drafter: Drafter, num_labels: int, group: int = 0) -> int:
    """Learn at least so many labels; return how many."""
    num = 0
    while num < num_labels:
        scores, matched, resolved = drafter.row()
        known.observe(group, scores, matched, range(resolved), 0.0)
        num += resolved
    return num


def distance(known: Calibration, drafter: Drafter, group: int = 0) -> float:
    """Mean distance of curves and truth, over drafts that get a label."""
    errors = [
        abs(
            known.curves.factor(group, at, row.scores[at]) - drafter.probability(at, row.scores[at])
        )
        for row in (drafter.row() for _ in range(500))
        for at in range(row.num_resolved)
    ]
    return sum(errors) / len(errors)


def test_it_begins_with_a_guess():
    margin = Calibration(Score.MARGIN)
    assert margin.curves.factor(0, 0, 0.0) == 0.5
    assert margin.curves.factor(2, 9, 4.0) > 0.95
    assert Calibration(Score.SURPRISAL).curves is NO_CURVES
    assert (margin.mean(), margin.error, margin.by_position) == (None, None, ())


def test_curves_come_to_what_is_true():
    known = Calibration(Score.MARGIN)
    learn(known, EASY, 8_000)
    assert distance(known, EASY) < 0.03
    assert known.mean() == pytest.approx(known.mean(0))
    for position, rate in enumerate(known.rates(0)):
        assert rate == pytest.approx(EASY.rate(position), abs=0.04)
    assert known.by_position == pytest.approx(known.rates(0), abs=0.01)


@pytest.mark.parametrize("drafter", [EASY, HARD])
def test_the_calibration_error_is_small_and_says_so(drafter):
    known = Calibration(Score.MARGIN)
    learn(known, drafter, 12_000)
    assert known.error is not None
    assert known.error <= 0.03


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("way", [1, -1])
def test_another_workload_is_followed_within_500_labels(seed, way):
    before, after = (EASY, HARD)[::way]
    known = Calibration(Score.MARGIN)
    learn(known, Drafter(*before.biases, seed=seed), 20_000 + 51 * seed)
    assert distance(known, after) > 0.3
    learn(known, Drafter(*after.biases, seed=seed + 10), 500)
    assert distance(known, after) < 0.1


def test_a_steady_workload_is_not_taken_for_another_one():
    known = Calibration(Score.MARGIN)
    learn(known, EASY, 4_000)
    for _ in range(40):
        learn(known, EASY, REFIT_LABELS)
        assert sum(sum(cell.counts) for cell in known.cells.values()) > 2_000


def test_classes_and_positions_have_curves_of_their_own():
    known = Calibration(Score.MARGIN)
    for _ in range(20):
        learn(known, EASY, 300, group=0)
        learn(known, HARD, 300, group=2)
    assert distance(known, EASY, 0) < 0.04
    assert distance(known, HARD, 2) < 0.04
    assert known.rates(1) == ()
    between = known.curves.factor(1, 0, 2.0)
    assert HARD.probability(0, 2.0) < between < EASY.probability(0, 2.0), "that of all classes"


def test_a_position_with_few_labels_follows_its_class():
    known = Calibration(Score.MARGIN)
    learn(known, Drafter(0.0), 4_000)
    known.observe(0, (1.0, 1.0), 2, range(2), 0.0)
    known.settle()
    first, second = (known.curves.factor(0, position, 1.0) for position in (0, 1))
    assert second == pytest.approx(first, abs=0.03)
    assert known.curves.factor(0, 30, 1.0) == second, "positions without labels too"


def test_higher_surprisals_never_make_a_draft_likelier():
    known = Calibration(Score.SURPRISAL)
    for _ in range(1_000):  # a drafter that is right where it is unsure
        known.observe(0, (6.0,), 1, range(1), 0.0)
        known.observe(0, (0.1,), 0, range(1), 0.0)
    assert known.curves.slopes == (0.0,) * NUM_CLASSES


def test_what_a_request_differs_by_is_told():
    known = Calibration(Score.MARGIN)
    learn(known, EASY, 1_000)
    residual, information = known.observe(0, (2.0,) * 4, 0, range(1), 0.0)
    assert residual < -0.5
    assert 0 < information <= 0.25
    nearer, _ = known.observe(0, (2.0,) * 4, 0, range(1), -4.0)
    assert residual < nearer < 0


@given(
    st.sampled_from([Score.MARGIN, Score.SURPRISAL]),
    st.lists(
        st.tuples(
            st.integers(0, NUM_CLASSES - 1),
            st.lists(st.floats(), max_size=MAX_DRAFT_TOKENS),
            st.integers(0, MAX_DRAFT_TOKENS),
            st.floats(-4, 4),
        ),
        max_size=12,
    ),
)
def test_no_drafter_makes_it_fail_or_grow(score, rows):
    known = Calibration(score)
    for group, scores, matched, offset in rows:
        told = known.observe(group, scores, matched, range(len(scores)), offset)
        assert all(map(math.isfinite, told))
    known.settle()
    assert len(known.cells) <= NUM_CLASSES * MAX_DRAFT_TOKENS
    curves = known.curves
    assert all(map(math.isfinite, (*curves.slopes, *curves.biases)))
    assert len(curves.slopes) == len(curves.biases) <= NUM_CLASSES * MAX_DRAFT_TOKENS
    assert max(map(abs, (*curves.slopes, *curves.biases)), default=0) <= 1e3
    for group in range(NUM_CLASSES):
        assert all(0 < rate < 1 for rate in known.rates(group))
