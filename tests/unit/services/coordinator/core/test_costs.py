from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from minedraft.plans import DraftResult, StepTiming
from minedraft.services.coordinator.core.answers import Answer
from minedraft.services.coordinator.core.costs import MAX_MODELS, Costs, per_depth
from minedraft.services.coordinator.core.origin import Origin
from minedraft.services.coordinator.core.step import Step
from minedraft.types import ModelInfo, RowId

SECOND = 10**9


def note(
    epoch: int, total_ns: int, k: int = 4, num_rows: int = 1, started_ns: int = 0
) -> DraftResult:
    timing = StepTiming(total_ns=total_ns, started_unix_ns=started_ns)
    return DraftResult(1, 0, k * num_rows, num_rows, timing, epoch, num_catch_up_tokens=num_rows)


def model(name: str = "m", device: str = "cpu", **facts: Any) -> ModelInfo:
    return ModelInfo(name, 50, 99, "", "float32", weights_fingerprint=name, device=device, **facts)


def costs_of(*epochs: int, step_timeout_s: float = 120.0) -> Costs:
    costs = Costs(step_timeout_s)
    costs.verifier_up(model("target"))
    for epoch in epochs:
        costs.add_source(epoch, model(f"drafter {epoch}"))
    return costs


# -- the draft timeout ----------------------------------------------------------------------


def test_the_draft_timeout_follows_the_longest_recent_draft_step():
    costs = costs_of(1)
    assert costs.draft_timeout_ns(1) == 10 * SECOND, "nothing is known yet"
    costs.drafted(note(1, 10**6), None)
    assert costs.draft_timeout_ns(1) == 1 * SECOND, "the floor"
    costs.drafted(note(1, SECOND), None)
    assert costs.draft_timeout_ns(1) == 6 * SECOND
    assert costs.draft_timeout_ns(1, num_ahead=2) == 8 * SECOND
    assert costs.draft_timeout_ns(1, num_ahead=9) == 10 * SECOND, "the ceiling"
    costs.drafted(note(1, 2 * SECOND), None)
    assert costs.draft_timeout_ns(1) == 10 * SECOND, "the ceiling"
    for _ in range(16):
        costs.drafted(note(1, 10**6), None)
    assert costs.draft_timeout_ns(1) == 1 * SECOND, "long ago"


def test_each_draft_source_has_a_timeout_of_its_own():
    costs = costs_of(1, 2)
    costs.drafted(note(1, 10**6), None)
    assert (costs.draft_timeout_ns(1), costs.draft_timeout_ns(2)) == (SECOND, 10 * SECOND)
    costs.drop_source(1)
    assert costs.draft_timeout_ns(1) == 10 * SECOND, "its link is over"
    costs.drop_source(1)


def test_a_verifier_is_not_left_for_drafts_that_it_waits_for():
    costs = costs_of(1, step_timeout_s=2.0)
    assert costs.draft_timeout_ns(1) == SECOND // 2, "nothing is known yet"
    costs.drafted(note(1, SECOND), None)
    assert costs.draft_timeout_ns(1) == SECOND // 2, "a slow drafter"


def test_a_warm_up_says_nothing_of_how_long_a_draft_takes():
    costs = costs_of(1)
    costs.drafted(note(1, 10**6, num_rows=0), None)
    assert costs.draft_timeout_ns(1) == 10 * SECOND
    costs.settle()
    assert costs.draft_ns((1,), 1, 0, overlapped=0) is None


def test_of_a_source_that_is_not_linked_nothing_is_learned():
    costs = costs_of(1)
    for epoch in range(2, 100):
        costs.drafted(note(epoch, 10**6), None)
    answer = Answer([], num_drafts=1, num_draft_tokens=4)
    costs.verified(Step(1, 0, {}, {}, source=7), answer, StepTiming(total_ns=5))
    costs.settle()
    assert list(costs._sources) == [1]
    assert costs.draft_ns((1,), 1, 0, overlapped=0, source=7) is None


# -- what steps cost ------------------------------------------------------------------------


def step_of(*num_draft_tokens: int, source: int = 1, num_scheduled_tokens: int = 0) -> Step:
    rows = {RowId(i): k for i, k in enumerate(num_draft_tokens, 1)}
    return Step(
        1, 0, {}, rows, num_scheduled_tokens or len(rows), context=100 * len(rows), source=source
    )


def timing(started_ns: int, total_ns: int) -> StepTiming:
    return StepTiming(started_unix_ns=started_ns, total_ns=total_ns)


def test_rows_per_depth_count_who_drafts_that_deep():
    assert per_depth([3, 0, 1, 3]) == (3, 2, 2)
    assert per_depth([0, 0]) == per_depth([]) == ()


def test_a_draft_step_is_learned_from_when_the_next_one_ends():
    costs = costs_of(1)
    costs.drafted(note(1, 8_000, k=4, num_rows=2), step_of(4, 4))
    assert costs.draft_ns((2, 2, 2, 2), 2, 200, overlapped=0) is None
    costs.drafted(note(1, 8_000, k=4, num_rows=2), step_of(4, 4))
    assert costs.draft_ns((2, 2, 2, 2), 2, 200, overlapped=0) == pytest.approx(8_000)
    assert costs.draft_ns((2,), 2, 200, overlapped=0) == pytest.approx(2_000), "a quarter of it"


def test_a_draft_step_in_which_rows_drafted_less_than_planned_says_nothing():
    costs = costs_of(1)
    costs.drafted(note(1, 8_000, k=4, num_rows=1), step_of(4, 4))
    costs.settle()
    assert costs.draft_ns((2,), 2, 0, overlapped=0) is None


def test_a_warm_up_says_what_prompts_cost():
    costs = costs_of(1)
    result = DraftResult(1, 0, 0, 0, timing(0, 9_000), 1, num_catch_up_tokens=300)
    costs.drafted(result, None)
    costs.settle()
    assert costs.draft_ns((), 300, 0, overlapped=0) == pytest.approx(9_000)


def test_a_verify_step_costs_by_the_tokens_that_it_fed():
    costs = costs_of(1)
    costs.verified(step_of(3, 3, 3, 3), Answer([], 4, 12), timing(0, 1_000))
    costs.settle()
    assert costs.verify_ns(16, 4, 400, overlapped=0) == pytest.approx(1_000)


def test_overlap_is_found_in_the_times_of_both_workers():
    """Verify steps take 100 with the drafter at work and 80 without it; drafts 50 and 40."""
    costs = costs_of(1)
    now = 1_000
    for is_overlapped in [True, False] * 200:
        costs.verified(step_of(1, 1), Answer([], 2, 2), timing(now, 100 if is_overlapped else 80))
        begin = now + (20 if is_overlapped else 200)  # while it is verified, or after that
        costs.drafted(
            note(1, 50 if is_overlapped else 40, k=1, num_rows=2, started_ns=begin), step_of(1, 1)
        )
        now += 1_000
    costs.settle()
    assert costs.draft_ns((2,), 2, 200, overlapped=False) == pytest.approx(40, rel=0.03)
    assert costs.draft_ns((2,), 2, 200, overlapped=True) == pytest.approx(50, rel=0.03)
    assert costs.verify_ns(4, 2, 200, overlapped=False) == pytest.approx(80, rel=0.03)
    assert costs.verify_ns(4, 2, 200, overlapped=0.5) == pytest.approx(100, rel=0.03)


def test_costs_outlive_the_link():
    costs = costs_of(1)
    costs.drafted(note(1, 8_000), step_of(4))
    costs.settle()
    costs.verified(step_of(4), Answer([], 1, 4, 4), timing(0, 1_000))
    costs.drop_source(1)
    assert costs.draft_ns((1,) * 4, 1, 100, overlapped=0) is None, "nobody drafts"
    costs.add_source(2, model("drafter 1"))
    assert costs.draft_ns((1,) * 4, 1, 100, overlapped=0) == pytest.approx(8_000)
    costs.drop_source(2)
    costs.add_source(3, model("drafter 1", device="another"))
    assert costs.draft_ns((1,) * 4, 1, 100, overlapped=0) is None


def test_another_target_costs_something_else():
    costs = costs_of(1)
    costs.verified(step_of(4), Answer([], 1, 4), timing(0, 1_000))
    costs.settle()
    costs.verifier_up(model("target"))
    assert costs.verify_ns(5, 1, 100, overlapped=0) == pytest.approx(1_000), "the same, again"
    costs.verifier_up(model("another"))
    assert costs.verify_ns(5, 1, 100, overlapped=0) is None


def test_of_several_sources_the_slowest_one_counts_unless_one_is_named():
    costs = costs_of(1, 2)
    for source, ns in ((1, 4_000), (2, 8_000)):
        costs.drafted(note(source, ns, k=2), step_of(2, source=source))
    costs.settle()
    assert costs.draft_ns((1, 1), 1, 100, overlapped=0) == pytest.approx(8_000)
    assert costs.draft_ns((1, 1), 1, 100, overlapped=0, source=1) == pytest.approx(4_000)


def test_models_that_are_swapped_for_ever_leave_a_bounded_number_of_tables():
    costs = costs_of()
    for epoch in range(1, 100):
        costs.add_source(epoch, model(f"drafter {epoch}"))
        costs.drop_source(epoch)
    assert len(costs._drafts) == MAX_MODELS


# -- earlier runs ---------------------------------------------------------------------------


def test_an_earlier_run_seeds_the_models_that_it_knew():
    first = costs_of(1)
    first.verified(step_of(4), Answer([], 1, 4), timing(0, 1_000))
    first.drafted(note(1, 8_000), step_of(4))
    known = json.loads(json.dumps(first.forms()))
    assert len(known) == 1
    again = Costs()
    assert again.seed({**known, "other": 7}).keys() == {"other"}
    again.verifier_up(model("target"))
    again.add_source(7, model("drafter 1"))
    assert again.verify_ns(5, 1, 100, overlapped=0) == pytest.approx(1_000)
    assert again.draft_ns((1,) * 4, 1, 100, overlapped=0) == pytest.approx(8_000)
    assert again.verify.origin is again.of_source(7).leg.origin is Origin.CACHE
    again.add_source(8, model("drafter 2"))
    assert again.draft_ns((1,) * 4, 1, 100, overlapped=0, source=8) is None
    assert again.of_source(8).leg.origin is Origin.UNKNOWN
    elsewhere = Costs()
    elsewhere.seed(known)
    elsewhere.verifier_up(model("target", device="another"))
    elsewhere.add_source(7, model("drafter 1"))
    assert elsewhere.verify_ns(5, 1, 100, overlapped=0) is None
    assert elsewhere.draft_ns((1,) * 4, 1, 100, overlapped=0) is None, "beside another target"


def test_a_target_without_drafters_is_known_by_itself():
    costs = costs_of()
    costs.verified(step_of(0, 0), Answer([]), timing(0, 1_000))
    (((target, draft), pair),) = costs.pairs().items()
    assert (target.weights_fingerprint, draft.weights_fingerprint) == ("target", "")
    assert pair.verify_ns(2, 2, 200, overlapped=0) == pytest.approx(1_000)
    assert costs_of(1).pairs() == {}, "nothing is known"


def test_a_step_whose_drafts_did_not_come_fed_only_committed_tokens():
    costs = costs_of(1)
    costs.verified(step_of(4, 4, 4, 4), Answer([]), timing(0, 1_000))
    costs.settle()
    assert costs.verify_ns(4, 4, 400, overlapped=0) == pytest.approx(1_000)


def test_drafts_that_were_drawn_ahead_say_nothing_of_what_drafting_costs():
    costs = costs_of(1)
    costs.drafted(note(1, SECOND), None)
    for _ in range(40):
        costs.drafted(replace(note(1, 10**3), num_ahead_tokens=4), None)
    assert costs.draft_timeout_ns(1) == 6 * SECOND
