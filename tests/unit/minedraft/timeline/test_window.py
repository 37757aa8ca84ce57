from __future__ import annotations

from minedraft.timeline.window import last_steps
from tests.unit.minedraft.timeline.rotation import spans


def test_the_newest_steps_come_with_what_the_drafter_did_meanwhile():
    kept = last_steps(spans(10), 3)
    assert [span.step_id for span in kept if span.lane == "verify"] == [8, 9, 10]
    assert [span.step_id for span in kept if span.lane == "draft"] == [9, 10]


def test_spans_come_out_by_start_time_whatever_their_order():
    kept = last_steps(spans(5)[::-1], 5)
    assert list(kept) == sorted(kept, key=lambda span: span.start_ns)


def test_nothing_gives_nothing():
    assert last_steps([], 5) == ()
