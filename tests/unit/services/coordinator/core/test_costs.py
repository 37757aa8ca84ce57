from __future__ import annotations

import pytest

from minedraft.plans import DraftResult, StepTiming
from minedraft.services.coordinator.core.answers import Answer
from minedraft.services.coordinator.core.costs import Costs
from minedraft.services.coordinator.core.step import Step

SECOND = 10**9


def note(epoch: int, total_ns: int, num_draft_tokens: int = 4, num_rows: int = 1) -> DraftResult:
    timing = StepTiming(total_ns=total_ns)
    return DraftResult(1, 0, num_draft_tokens, num_rows, timing, epoch)


def costs_of(*epochs: int, step_timeout_s: float = 120.0) -> Costs:
    costs = Costs(step_timeout_s)
    for epoch in epochs:
        costs.add_source(epoch)
    return costs


# -- the draft timeout ----------------------------------------------------------------------


def test_the_draft_timeout_follows_the_longest_recent_draft_step():
    costs = costs_of(1)
    assert costs.draft_timeout_ns(1) == 10 * SECOND, "nothing is known yet"
    costs.drafted(note(1, 10**6))
    assert costs.draft_timeout_ns(1) == 1 * SECOND, "the floor"
    costs.drafted(note(1, SECOND))
    assert costs.draft_timeout_ns(1) == 6 * SECOND
    assert costs.draft_timeout_ns(1, num_ahead=2) == 8 * SECOND
    assert costs.draft_timeout_ns(1, num_ahead=9) == 10 * SECOND, "the ceiling"
    costs.drafted(note(1, 2 * SECOND))
    assert costs.draft_timeout_ns(1) == 10 * SECOND, "the ceiling"
    for _ in range(16):
        costs.drafted(note(1, 10**6))
    assert costs.draft_timeout_ns(1) == 1 * SECOND, "long ago"


def test_each_draft_source_has_a_timeout_of_its_own():
    costs = costs_of(1, 2)
    costs.drafted(note(1, 10**6))
    assert (costs.draft_timeout_ns(1), costs.draft_timeout_ns(2)) == (SECOND, 10 * SECOND)
    costs.drop_source(1)
    assert costs.draft_timeout_ns(1) == 10 * SECOND, "its link is over"
    costs.drop_source(1)


def test_a_verifier_is_not_left_for_drafts_that_it_waits_for():
    costs = costs_of(1, step_timeout_s=2.0)
    assert costs.draft_timeout_ns(1) == SECOND // 2, "nothing is known yet"
    costs.drafted(note(1, SECOND))
    assert costs.draft_timeout_ns(1) == SECOND // 2, "a slow drafter"


def test_a_warm_up_says_nothing_of_how_long_a_draft_takes():
    costs = costs_of(1)
    costs.drafted(note(1, 10**6, num_rows=0))
    assert costs.draft_timeout_ns(1) == 10 * SECOND
    assert costs.of_source(1).column.estimate(1) is None


def test_of_a_source_that_is_not_linked_nothing_is_learned():
    costs = costs_of(1)
    for epoch in range(2, 100):
        costs.drafted(note(epoch, 10**6))
    costs.verified(Step(1, 0, {}, {}, source=7), Answer([], num_drafts=1, num_draft_tokens=4), 5)
    assert list(costs._sources) == [1]
    assert costs.of_source(7).column.estimate(1) is None


# -- durations and acceptance ---------------------------------------------------------------


def test_a_draft_step_costs_a_column_per_token_of_a_row():
    costs = costs_of(1)
    costs.drafted(note(1, 8_000, num_draft_tokens=32, num_rows=8))
    assert costs.of_source(1).column.estimate(8) == 2_000
    costs.drafted(note(1, 9_000, num_draft_tokens=33, num_rows=16))  # one row drafts more
    assert costs.of_source(1).column.estimate(16) == 3_000


def test_a_verify_step_costs_by_the_tokens_that_it_fed():
    costs = costs_of(1)
    step = Step(1, 0, {}, {}, num_scheduled_tokens=4, source=1)
    costs.verified(step, Answer([], num_drafts=4, num_draft_tokens=12), 1_000)
    assert costs.verify.estimate(16) == 1_000


@pytest.mark.parametrize("source", [1, 2])
def test_acceptance_is_that_of_the_source_that_drafted(source):
    costs = costs_of(1, 2)
    step = Step(1, 0, {}, {}, num_scheduled_tokens=4, source=source)
    for _ in range(50):
        costs.verified(
            step,
            Answer(
                [],
                num_drafts=4,
                num_draft_tokens=16,
                num_accepted_tokens=12,
                num_refused_tokens=3,
            ),
            1_000,
        )
    assert costs.of_source(source).acceptance.mean() == pytest.approx(0.8, abs=0.02)
    assert costs.of_source(3 - source).acceptance.mean() == 0.5


def test_a_step_whose_drafts_did_not_come_says_nothing_of_acceptance():
    costs = costs_of(1)
    step = Step(1, 0, {}, {}, num_scheduled_tokens=4, source=1)
    costs.verified(step, Answer([]), 1_000)
    assert costs.of_source(1).acceptance.mean() == 0.5
    assert costs.verify.estimate(4) == 1_000
