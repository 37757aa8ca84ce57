from __future__ import annotations

from minedraft.plans import RowResult, StepTiming, VerifyResult
from minedraft.services.coordinator.core.counters import Counters
from minedraft.types import RowId


def test_ends_are_counted_by_reason():
    counters = Counters()
    for reason in ("stop", "length", "stop", "abort"):
        counters.finished(reason)
    assert counters.num_finished == {"stop": 2, "length": 1, "abort": 1}


def test_a_step_adds_its_rows():
    counters = Counters()
    rows = (
        RowResult(RowId(1), 5, (1, 2, 3), 4, 2),
        RowResult(RowId(2), 5, (), 0, 0),  # a prefill chunk is no draft
        RowResult(RowId(3), 9, (1,), 3, 0),
    )
    counters.verified(VerifyResult(1, 0, rows, StepTiming(), num_stale_drafts=2))
    counters.verified(VerifyResult(2, 1, (), StepTiming(), num_stale_drafts=1))
    assert counters.num_steps == 2
    assert counters.num_drafts == 2
    assert counters.num_draft_tokens == 7
    assert counters.num_accepted_tokens == 2
    assert counters.num_stale_drafts == 3
