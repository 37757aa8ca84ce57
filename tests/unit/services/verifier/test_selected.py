from __future__ import annotations

import pytest

from minedraft.packets.rows import DraftedRow
from minedraft.plans import VerifyRow
from minedraft.selection import NUM_CLASSES, Curves, Selection
from minedraft.services.verifier.selected import num_verified
from minedraft.types import Acceptance, RowId, RowParams

GREEDY, WARM = RowParams(), RowParams(temperature=1.0)
COUPLED, REJECTION = Acceptance.COUPLED, Acceptance.REJECTION
CURVES = Curves((1.0,) * NUM_CLASSES, (-1.0,) * NUM_CLASSES)


def planned(number: int, k: int = 3) -> VerifyRow:
    return VerifyRow(RowId(number), 5, (), 4, 1, k, (), 0)


def drafted(number: int, *scores: float, k: int = 3) -> DraftedRow:
    return DraftedRow(number, 5, tuple(range(k)), scores)


def count(drafts, selection, *, params=None, rule=COUPLED, k=3) -> list[int]:
    rows = [planned(index, k) for index in range(len(drafts))]
    return num_verified(rows, drafts, params or [GREEDY] * len(rows), selection, rule)


def test_without_a_selection_all_that_was_planned_and_came_is_verified():
    drafts = [drafted(0), None, drafted(2, k=2), drafted(3, k=5)]
    assert count(drafts, None) == [3, 0, 2, 3]


def test_the_best_are_verified():
    drafts = [drafted(0, 4, 4, 0), drafted(1, 0, 4, 4), drafted(2, 4, 0, 4)]
    assert count(drafts, Selection(3, curves=CURVES)) == [2, 0, 1]
    assert count(drafts, Selection(100, curves=CURVES)) == [3, 3, 3]
    assert count(drafts, Selection(0, curves=CURVES)) == [0, 0, 0]


def test_rows_whose_drafts_did_not_come_leave_their_share_to_the_others():
    selection = Selection(3, floor=1, curves=CURVES)
    assert count([drafted(0, 4, 4, 4), drafted(1, 0, 0, 0)], selection) == [2, 1]
    assert count([None, drafted(1, 0, 0, 0)], selection) == [0, 3]


def test_offsets_are_those_of_the_plans_rows_whichever_drafts_came():
    selection = Selection(2, curves=CURVES, offsets=(0.0, 5.0, -5.0))
    drafts = [None, drafted(1, 1, 1, 1), drafted(2, 1, 1, 1)]
    assert count(drafts, selection) == [0, 2, 0]


def test_temperatures_have_curves_of_their_own():
    curves = Curves((0.0,) * NUM_CLASSES, (2.0, 0.0, -2.0))
    drafts = [drafted(0, 1, 1, 1), drafted(1, 1, 1, 1)]
    assert count(drafts, Selection(3, curves=curves), params=[WARM, GREEDY]) == [0, 3]


@pytest.mark.parametrize(("rule", "want"), [(COUPLED, [0, 1]), (REJECTION, [3, 1])])
def test_sampled_rows_under_rejection_verify_all_outside_the_budget(rule, want):
    drafts = [drafted(0, 0, 0, 0), drafted(1, 4, 4, 4)]
    selection = Selection(1, curves=CURVES)
    assert count(drafts, selection, params=[WARM, GREEDY], rule=rule) == want


@pytest.mark.parametrize("curves", [CURVES, Curves()])
def test_without_scores_first_drafts_come_first(curves):
    drafts = [drafted(0), drafted(1), drafted(2)]
    assert count(drafts, Selection(4, curves=curves)) == [2, 1, 1]


@pytest.mark.parametrize("score", [0.0, 3e38])
def test_scores_of_one_row_move_the_budget_and_nothing_else(score):
    drafts = [drafted(0, score, score, score), drafted(1, 1, 1, 1)]
    for curves in (CURVES, Curves()):
        counts = count(drafts, Selection(4, floor=1, curves=curves))
        assert sum(counts) == 4
        assert min(counts) == 1
