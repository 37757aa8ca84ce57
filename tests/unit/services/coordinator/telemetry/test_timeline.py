from __future__ import annotations

from minedraft.plans import (
    DraftPlan,
    DraftResult,
    DraftRow,
    RowResult,
    StepTiming,
    VerifyPlan,
    VerifyResult,
    VerifyRow,
)
from minedraft.services.coordinator.telemetry.timeline import Timeline
from minedraft.types import RowId


def verify_row(row_id: int, num_feed: int) -> VerifyRow:
    return VerifyRow(RowId(row_id), num_feed, (), 0, num_feed, 0, (), 0)


def drafted(step_id: int, start_ns: int = 0) -> DraftResult:
    return DraftResult(step_id, 1, 8, 2, StepTiming(started_unix_ns=start_ns, total_ns=5))


def verified(step_id: int, start_ns: int = 1) -> VerifyResult:
    rows = (RowResult(RowId(1), 5, (1, 2, 3), 4, 2), RowResult(RowId(2), 5, ()))
    return VerifyResult(step_id, 1, rows, StepTiming(started_unix_ns=start_ns, total_ns=7))


def test_a_span_says_what_came_of_the_step():
    timeline = Timeline()
    draft_rows = (DraftRow(RowId(1), 5, (), 4), DraftRow(RowId(2), 5, (), 0))
    timeline.planned(
        DraftPlan(9, 1, 1, draft_rows), VerifyPlan(9, 1, 1, (verify_row(1, 1), verify_row(2, 3)))
    )
    timeline.drafted(drafted(9, 100))
    timeline.verified(verified(9, 200))
    draft, verify = timeline.spans()
    assert (draft.lane, draft.batch, draft.step_id) == ("draft", 1, 9)
    assert (draft.num_rows, draft.num_tokens, draft.num_prefill_rows) == (2, 8, 1)
    assert (draft.start_ns, draft.end_ns) == (100, 105)
    assert (verify.lane, verify.num_rows, verify.num_tokens) == ("verify", 2, 3)
    assert (verify.num_draft_tokens, verify.num_accepted_tokens) == (4, 2)
    assert verify.num_prefill_rows == 1


def test_old_spans_fall_out():
    timeline = Timeline(max_spans=3)
    for step in range(10):
        timeline.verified(verified(step))
    assert [span.step_id for span in timeline.spans()] == [7, 8, 9]


def test_spans_are_cut_by_time_and_number_newest_kept_oldest_first():
    timeline = Timeline()
    for step in range(6):
        timeline.verified(verified(step, start_ns=10 * step))
    assert [s.step_id for s in timeline.spans(since_unix_ns=20)] == [3, 4, 5]
    assert [s.step_id for s in timeline.spans(max_spans=2)] == [4, 5]
    assert [s.step_id for s in timeline.spans(max_spans=2, since_unix_ns=45)] == [5]


def test_plans_of_a_lost_link_are_forgotten_and_those_of_others_are_not():
    timeline = Timeline()
    for step, epoch in ((1, 6), (2, 7)):
        draft = DraftPlan(step, 1, epoch, (DraftRow(RowId(1), 5, (), 0),))
        timeline.planned(draft, VerifyPlan(step, 1, epoch, (verify_row(1, 3),)))
    timeline.forget_drafts(6)
    for step in (1, 2):
        timeline.drafted(drafted(step))
        timeline.verified(verified(step))
    spans = timeline.spans(since_unix_ns=-1)
    assert [(s.lane, s.num_prefill_rows) for s in spans] == [
        ("draft", 0),
        ("verify", 1),
        ("draft", 1),
        ("verify", 1),
    ]


def test_plans_of_a_lost_worker_are_forgotten():
    timeline = Timeline()
    timeline.planned(None, VerifyPlan(1, 0, 0, (verify_row(1, 4),)))
    timeline.forget_plans()
    timeline.verified(verified(1))
    assert timeline.spans()[0].num_prefill_rows == 0
    assert not timeline._prefill_rows


def test_nothing_is_remembered_of_a_step_that_was_reported():
    timeline = Timeline()
    for step in range(5):
        rows = (DraftRow(RowId(1), 5, (), 4),)
        timeline.planned(DraftPlan(step, 0, 1, rows), VerifyPlan(step, 0, 1, (verify_row(1, 1),)))
        timeline.drafted(drafted(step))
        timeline.verified(verified(step))
    assert not timeline._prefill_rows


def test_plans_that_only_close_leave_nothing():
    timeline = Timeline()
    timeline.planned(
        DraftPlan(0, 0, 1, closes=(RowId(1),)), VerifyPlan(0, 0, 0, closes=(RowId(1),))
    )
    assert not timeline._prefill_rows
