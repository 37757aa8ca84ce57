from __future__ import annotations

import random

import pytest

from minedraft.services.coordinator.core.leg_costs import DraftLeg, VerifyLeg


def test_of_a_leg_that_was_never_seen_nothing_is_known():
    assert VerifyLeg().ns(8, 8, 0, overlapped=0) is None
    assert DraftLeg().ns((8, 8), 8, 0, overlapped=0) is None
    assert DraftLeg().ns((), 0, 0, overlapped=0) is None


def test_steps_without_work_or_time_teach_nothing():
    verify, draft = VerifyLeg(), DraftLeg()
    verify.observe(0, 0, 0, 100, overlapped=0)
    verify.observe(8, 8, 0, 0, overlapped=0)
    draft.observe((), 0, 0, 100, overlapped=0)
    draft.observe((8,), 8, 0, 0, overlapped=0)
    assert verify.ns(8, 8, 0, overlapped=0) is None
    assert draft.ns((8,), 8, 0, overlapped=0) is None


def test_both_cores_busy_cost_more():
    leg = VerifyLeg()
    for _ in range(100):
        leg.observe(40, 8, 0, 78_000_000, overlapped=0)
        leg.observe(40, 8, 0, 92_000_000, overlapped=1)
    assert leg.ns(40, 8, 0, overlapped=False) == pytest.approx(78e6, rel=0.02)
    assert leg.ns(40, 8, 0, overlapped=True) == pytest.approx(92e6, rel=0.02)


def test_one_stalled_step_does_not_move_a_decision():
    """A shape is left at 5 %."""
    leg = VerifyLeg()
    for _ in range(20):
        leg.observe(40, 8, 0, 80_000_000, overlapped=1)
    leg.observe(40, 8, 0, 8_000_000_000, overlapped=1)
    for _ in range(3):
        assert leg.ns(40, 8, 0, overlapped=1) == pytest.approx(80e6, rel=0.03)
        leg.observe(40, 8, 0, 80_000_000, overlapped=1)


def test_a_machine_that_is_slower_for_good_is_so_for_every_size_at_once():
    leg = VerifyLeg()
    for size in (10, 20, 40) * 20:
        leg.observe(size, size // 5, 0, 1_000_000 * size, overlapped=0)
    for _ in range(25):
        leg.observe(20, 4, 0, 40_000_000, overlapped=0)
    assert leg.ns(20, 4, 0, overlapped=0) == pytest.approx(40e6, rel=0.1)
    assert leg.ns(40, 8, 0, overlapped=0) > 60e6


def test_a_prompt_says_nothing_of_what_steps_cost_at_present():
    leg = VerifyLeg()
    for _ in range(20):
        leg.observe(40, 8, 0, 80_000_000, overlapped=0)
    for _ in range(20):
        leg.observe(40, 1, 0, 50_000_000, overlapped=0, is_rough=True)
        leg.observe(300, 1, 0, 200_000_000, overlapped=0, is_rough=True)
    assert leg.ns(40, 8, 0, overlapped=0) == pytest.approx(80e6, rel=0.01)
    assert leg.ns(300, 1, 0, overlapped=0) == pytest.approx(200e6, rel=0.05)


def test_a_first_draft_and_further_ones_are_told_apart():
    """True costs: 3 ms and 100 us per token fed; then 1 ms and 50 us per row."""
    leg, chance = DraftLeg(), random.Random(3)

    def cost(rows_per_depth: tuple[int, ...], fed: int) -> int:
        further = sum(1_000_000 + 50_000 * rows for rows in rows_per_depth[1:])
        return 3_000_000 + 100_000 * fed + further

    asked = [(rows, k) for rows in (2, 4, 8) for k in (1, 4)]  # as trials do
    asked += [(chance.choice([2, 4, 8]), chance.choice([1, 2, 4, 6])) for _ in range(400)]
    for rows, k in asked:
        noisy = cost((rows,) * k, rows) * chance.lognormvariate(0, 0.05)
        leg.observe((rows,) * k, rows, 0, int(noisy), overlapped=0)
    for rows, k in ((2, 1), (8, 1), (4, 4), (8, 6), (8, 3)):
        step = (rows,) * k
        assert leg.ns(step, rows, 0, overlapped=0) == pytest.approx(cost(step, rows), rel=0.08)
    staggered = (8, 8, 4, 2)
    assert leg.ns(staggered, 8, 0, overlapped=0) == pytest.approx(cost(staggered, 8), rel=0.08)


def test_a_prompt_is_one_pass():
    leg = DraftLeg()
    leg.observe((), 400, 400, 90_000_000, overlapped=0)
    assert leg.ns((), 400, 400, overlapped=0) == pytest.approx(90e6)
    for _ in range(3):
        leg.observe((8, 8), 8, 80, 4_000_000, overlapped=0)
    assert leg.ns((8, 8), 8, 80, overlapped=0) == pytest.approx(4e6, rel=0.01)
    assert leg.ns((), 400, 400, overlapped=0) == pytest.approx(90e6, rel=0.01)


def test_settling_changes_no_estimate():
    verify, draft = VerifyLeg(), DraftLeg()
    for _ in range(30):
        verify.observe(40, 8, 500, 80_000_000, overlapped=0.7)
        draft.observe((8, 8), 9, 500, 9_000_000, overlapped=0.7)
    for _ in range(9):
        verify.observe(40, 8, 600, 130_000_000, overlapped=0.7)
        draft.observe((8, 8), 9, 600, 15_000_000, overlapped=0.2)

    def estimates() -> list[float | None]:
        return [
            value
            for overlapped in (0, 1)
            for value in (
                verify.ns(30, 6, 700, overlapped=overlapped),
                draft.ns((8, 4), 12, 700, overlapped=overlapped),
            )
        ]

    before = estimates()
    verify.settle()
    draft.settle()
    assert estimates() == pytest.approx(before)
    assert verify.residual.factor(0) == draft.residual.factor(0) == 1
