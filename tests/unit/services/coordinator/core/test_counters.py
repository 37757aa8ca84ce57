from __future__ import annotations

from minedraft import admin
from minedraft.services.coordinator.core.answers import Answer
from minedraft.services.coordinator.core.counters import Counters


def test_ends_are_counted_by_reason():
    counters = Counters()
    for reason in ("stop", "length", "stop", "abort"):
        counters.finished(reason)
    assert counters.num_finished == {"stop": 2, "length": 1, "abort": 1}


def test_a_step_adds_its_answer():
    counters = Counters()
    counters.verified(
        Answer([], num_drafts=2, num_draft_tokens=7, num_accepted_tokens=2, num_broken_rows=1),
        num_stale_drafts=2,
        num_behind=1,
    )
    counters.verified(Answer([]), num_stale_drafts=1, num_behind=2)
    assert counters.num_behind_rows == 3
    assert counters.num_steps == 2
    assert counters.num_drafts == 2
    assert counters.num_draft_tokens == 7
    assert counters.num_accepted_tokens == 2
    assert counters.num_stale_drafts == 3
    assert counters.num_broken_rows == 1


def test_a_snapshot_stays_as_it_is():
    counters = Counters()
    counters.finished("stop")
    counters.num_steps = 7
    before = counters.snapshot()
    counters.finished("stop")
    counters.num_steps = 8
    assert before == admin.Counters(num_finished={"stop": 1}, num_steps=7)
    assert counters.snapshot() == admin.Counters(num_finished={"stop": 2}, num_steps=8)


def test_drafts_are_counted_by_their_place():
    counters = Counters()
    assert counters.snapshot().num_drafted_per_position == ()
    counters.verified(Answer([], judged=[(3, 2), (1, 0)]), num_stale_drafts=0, num_behind=0)
    counters.verified(Answer([], judged=[(3, 3), (2, 1)]), num_stale_drafts=0, num_behind=0)
    found = counters.snapshot()
    assert found.num_drafted_per_position == (4, 3, 2)
    assert found.num_accepted_per_position == (3, 2, 1)
