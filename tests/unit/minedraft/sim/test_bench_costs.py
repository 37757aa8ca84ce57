from __future__ import annotations

import pytest

from minedraft.bench.step_sizes import StepSize
from minedraft.errors import ConfigError
from minedraft.sim.bench_costs import costs_of
from minedraft.sim.bench_file import Asked, BenchMode
from minedraft.sim.load import Arrival
from minedraft.types import Mode

MS = 1e6


def mode(k, *steps, num_requests=4, name="any"):
    requests = tuple(Asked(Arrival(50, 20), 0, ()) for _ in range(num_requests))
    return BenchMode(name, Mode(1, 4, k), 0.0, 0.0, 0.0, 0.0, steps, requests)


def step(lane, rows, drafts, ms, overlap=0.0, num_steps=20, prefill=0):
    return StepSize(lane, rows, drafts, prefill, num_steps, ms, ms * num_steps, overlap)


PLAIN = mode(0, step("verify", 4, 0, 20), name="ar")
TURNS = mode(3, step("verify", 4, 12, 40), step("draft", 4, 12, 15), name="sd")


def test_costs_are_those_that_were_measured():
    costs = costs_of([PLAIN, TURNS])
    assert costs.verify_ns(4, 4, 0, overlapped=0) == pytest.approx(20 * MS)
    assert costs.verify_ns(16, 4, 0, overlapped=0) == pytest.approx(40 * MS)
    assert costs.verify_ns(10, 4, 0, overlapped=0) == pytest.approx(30 * MS)
    assert costs.draft_ns((4, 4, 4), 6, 0, overlapped=0) == pytest.approx(15 * MS)


def test_what_overlap_costs_is_found():
    # Half of its time beside the other device: 12 of 40 ms alone are done in 12, the rest in 42.
    beside = mode(3, step("verify", 4, 12, 54, overlap=42 / 54), step("draft", 4, 12, 18, 1.0))
    costs = costs_of([PLAIN, TURNS, beside])
    assert costs.verify_ns(16, 4, 0, overlapped=1) == pytest.approx(60 * MS)
    assert costs.verify_ns(16, 4, 0, overlapped=0) == pytest.approx(40 * MS)
    assert costs.draft_ns((4, 4, 4), 6, 0, overlapped=1) == pytest.approx(18 * MS)


def test_a_bench_without_turns_takes_overlapped_steps_for_plain_ones():
    beside = mode(3, step("verify", 4, 12, 54, overlap=0.7), step("draft", 4, 12, 18, 1.0))
    costs = costs_of([beside])
    assert costs.verify_ns(16, 4, 0, overlapped=0) == pytest.approx(54 * MS)
    assert costs.verify_ns(16, 4, 0, overlapped=1) == pytest.approx(54 * MS)


def test_steps_with_prompts_say_what_many_tokens_cost():
    prompts = mode(0, step("verify", 4, 0, 20), step("verify", 4, 0, 90, num_steps=2, prefill=4))
    costs = costs_of([prompts])
    assert costs.verify_ns(100, 4, 0, overlapped=0) == pytest.approx(90 * MS)


def test_a_bench_without_verify_steps_is_refused():
    with pytest.raises(ConfigError, match="no verify step"):
        costs_of([mode(3, step("draft", 4, 12, 18))])


def test_steps_of_the_replayed_measurement_count_before_the_others():
    slow = mode(3, step("verify", 4, 12, 80), step("verify", 4, 0, 50), name="slow")
    costs = costs_of([PLAIN, TURNS, slow], own=TURNS)
    assert costs.verify_ns(16, 4, 0, overlapped=0) == pytest.approx(40 * MS)
    # 4 tokens cost 20 or 50 ms: the mean contradicts nothing, so it stays.
    assert costs.verify_ns(4, 4, 0, overlapped=0) == pytest.approx(35 * MS)
    dear = mode(0, step("verify", 4, 0, 90), name="dear")
    costs = costs_of([dear, TURNS], own=TURNS)
    assert costs.verify_ns(4, 4, 0, overlapped=0) == pytest.approx(40 * MS)


def test_a_size_that_was_seen_once_does_not_count_beside_others():
    rare = mode(3, step("verify", 3, 9, 500, num_steps=1), name="rare")
    costs = costs_of([TURNS, rare])
    assert costs.verify_ns(12, 3, 0, overlapped=0) == pytest.approx(40 * MS)
