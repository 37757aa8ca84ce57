from __future__ import annotations

import pytest

from minedraft.admin import Span
from minedraft.bench.steady import measure
from minedraft.plans import StepTiming

MS = 1_000_000


def verify(start_ms: float, total_ms: float, rows: int, tokens: int, prefill: int = 0) -> Span:
    timing = StepTiming(int(start_ms * MS), int(total_ms * MS), bubble_ns=int(0.5 * MS))
    return Span("verify", 0, 1, timing, rows, tokens, num_prefill_rows=prefill)


def draft(start_ms: float, total_ms: float, rows: int, tokens: int = 8) -> Span:
    return Span("draft", 0, 1, StepTiming(int(start_ms * MS), int(total_ms * MS)), rows, tokens)


def test_tokens_over_whole_periods_of_full_steps():
    spans = [verify(i * 20, 12, 4, 10) for i in range(6)]
    steady = measure(spans, batch=4)
    assert steady.num_steps == 5  # the last step has no end of its period
    assert steady.step_ms == 20
    assert steady.verify_ms == 12
    assert steady.bubble_ms == 0.5
    assert steady.tokens_per_s == pytest.approx(10 / 0.020)


def test_prefill_and_thin_steps_are_not_steady():
    spans = [verify(i * 20, 12, 4, 10) for i in range(5)]
    spans += [verify(100, 90, 4, 4, prefill=2)]
    spans += [verify(190 + i * 20, 12, 4, 10) for i in range(4)]
    spans += [verify(270 + i * 5, 4, 2, 4) for i in range(50)]
    steady = measure(spans, batch=4)
    assert steady.num_steps == 4 + 3
    assert steady.step_ms == 20
    assert steady.tokens_per_s == pytest.approx(10 / 0.020)


def test_drafts_count_where_the_batch_was_full():
    spans = [verify(i * 20, 12, 4, 10) for i in range(5)]
    spans += [draft(i * 20, 7, 4) for i in range(5)]
    spans += [draft(i * 20, 100, 2) for i in range(9)]  # a thin batch
    spans += [draft(i * 20, 100, 4, tokens=0) for i in range(9)]  # only catching up
    assert measure(spans, batch=4).draft_ms == 7


def test_if_the_slots_were_never_full_the_fullest_size_counts_and_says_so():
    spans = [verify(i * 20, 12, 3, 6) for i in range(6)]
    steady = measure(spans, batch=4)
    assert steady.num_rows == 3
    assert steady.tokens_per_s == 6 / 0.020


def test_too_little_gives_no_figures():
    assert measure([verify(0, 1, 4, 4), verify(2, 1, 4, 4)], batch=4).num_steps == 0
    assert measure([], batch=4).tokens_per_s == 0
