from __future__ import annotations

from dataclasses import replace

from minedraft.timeline.window import full_steps, last_steps
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


def test_a_pause_ends_the_picture():
    made = spans(6)
    late = [
        replace(span, timing=replace(span.timing, started_unix_ns=span.start_ns + 5 * 10**9))
        for span in spans(3)
    ]
    kept = last_steps([*made, *late], 5)
    assert [span.step_id for span in kept if span.lane == "verify"] == [1, 2, 3]


def test_full_steps_are_the_first_run_without_prompts_and_thin_batches():
    made = [
        replace(span, num_rows=2) if span.step_id == 4 and span.lane == "verify" else span
        for span in spans(9)
    ]
    kept = full_steps(made, 3, num_rows=4)
    assert [span.step_id for span in kept if span.lane == "verify"] == [5, 6, 7]
    assert [span.step_id for span in kept if span.lane == "draft"] == [6, 7, 8]


def test_the_longest_run_counts_if_none_is_long_enough():
    kept = full_steps(spans(6), 100, num_rows=4)
    assert [span.step_id for span in kept if span.lane == "verify"] == [2, 3, 4, 5, 6]


def test_without_a_full_step_the_newest_ones_are_shown():
    kept = full_steps(spans(4), 2, num_rows=9)
    assert [span.step_id for span in kept if span.lane == "verify"] == [3, 4]
