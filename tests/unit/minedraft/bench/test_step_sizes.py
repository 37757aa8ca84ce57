from __future__ import annotations

import json

import pytest

from minedraft.admin import Span
from minedraft.bench import step_sizes as module
from minedraft.bench.step_sizes import step_sizes
from minedraft.plans import StepTiming

MS = 1_000_000


def span(lane, start_ms, total_ms, rows, drafts=0, prefill=0):
    timing = StepTiming(int(start_ms * MS), int(total_ms * MS))
    tokens = {"num_tokens": drafts} if lane == "draft" else {"num_draft_tokens": drafts}
    return Span(lane, 0, 1, timing, num_rows=rows, num_prefill_rows=prefill, **tokens)


def test_steps_of_one_size_are_one_line():
    spans = [span("verify", 20 * i, 10 + i, 4, 12) for i in range(3)]
    spans += [span("verify", 100, 30, 4, 0, prefill=2), span("draft", 12, 5, 4, 12)]
    found = step_sizes(spans)
    facts = [(s.lane, s.num_rows, s.num_draft_tokens, s.num_prefill_rows) for s in found]
    assert facts == [("draft", 4, 12, 0), ("verify", 4, 0, 2), ("verify", 4, 12, 0)]
    assert [s.num_steps for s in found] == [1, 1, 3]
    assert found[-1].total_ms == pytest.approx(11)
    assert found[-1].sum_ms == pytest.approx(33)
    assert json.loads(json.dumps(found[0].to_json()))["total_ms_p50"] == pytest.approx(5)


def test_the_share_in_which_the_other_device_computed_is_known():
    spans = [span("verify", 0, 10, 4), span("draft", 6, 8, 4, 12), span("draft", 20, 5, 4, 12)]
    draft, verify = step_sizes(spans)
    assert verify.overlap == pytest.approx(0.4)
    assert draft.overlap == pytest.approx((4 / 8 + 0) / 2)


def test_the_sizes_with_the_most_steps_stay(monkeypatch):
    monkeypatch.setattr(module, "MAX_SIZES", 2)
    spans = [span("verify", 10 * rows, 5, rows) for rows in (1, 2, 2, 3, 3)]
    assert [size.num_rows for size in step_sizes(spans)] == [2, 3]


def test_a_run_without_steps_has_no_sizes():
    assert step_sizes([]) == ()
