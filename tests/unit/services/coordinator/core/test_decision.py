from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.services.coordinator.core.costs import Costs
from minedraft.services.coordinator.core.decision import Decision
from minedraft.services.coordinator.core.estimator import Estimator
from minedraft.services.coordinator.core.step_view import (
    DecodingSequence,
    Limits,
    PrefillingSequence,
    StepView,
)

VIEW = StepView(
    batch=0,
    decoding=[DecodingSequence(10, 4, 3, 12, 0.5), DecodingSequence(30, 4, 0, 32, 0.5)],
    prefilling=[PrefillingSequence(9, 9), PrefillingSequence(7, 3)],
    limits=Limits(4, 8, 100, 100),
    costs=Costs(),
    estimator=Estimator(),
    num_free_blocks=0,
    block_size=4,
    most_draft_tokens=[3, 0],
)


def test_nobody_gets_more_than_there_is_room_for():
    assert Decision([9, 9], [20, 20], 100).bounded_by(VIEW) == Decision([3, 0], [9, 3], 8)


def test_nobody_drafts_more_than_its_caller_and_the_service_ask_for():
    """k sizes the packets of a link; a caller that asks for none gets none."""
    view = replace(VIEW, most_draft_tokens=[4, 0])
    assert Decision([9, 9], [1, 1], 8).bounded_by(view).num_draft_tokens == [4, 0]


def test_who_says_nothing_of_drafts_gets_what_each_wants():
    assert Decision(None, [1, 1], 8).bounded_by(VIEW).num_draft_tokens == [3, 0]


def test_nobody_drafts_less_than_nothing():
    assert Decision([-1, -9], [1, 1], 8).bounded_by(VIEW).num_draft_tokens == [0, 0]


def test_who_asks_for_less_gets_less():
    assert Decision([2, 0], [4, 0], 6).bounded_by(VIEW) == Decision([2, 0], [4, 0], 6)


@pytest.mark.parametrize("decision", [Decision([1], [1, 1], 8), Decision([1, 1], [1] * 3, 8)])
def test_a_decision_has_one_entry_per_member(decision):
    with pytest.raises(ValueError, match="zip"):
        decision.bounded_by(VIEW)
