from __future__ import annotations

import json

import pytest

from minedraft.bench.step_sizes import StepSize
from minedraft.sim.bench_file import Asked, BenchMode
from minedraft.sim.load import Arrival
from minedraft.sim.replay import replay
from minedraft.sim.setup import Setup
from minedraft.types import Mode


def measured(name, mode, *steps):
    requests = tuple(Asked(Arrival(20, 40), 0, ()) for _ in range(2 * mode.num_slots))
    return BenchMode(name, mode, 100.0, 50.0, 0.0, 0.0, steps, requests)


def step(lane, rows, drafts, ms):
    return StepSize(lane, rows, drafts, 0, 20, ms, ms * 20, 0.0)


def test_each_measurement_is_simulated_under_its_own_requests_and_cores():
    modes = {
        "ar": measured("ar", Mode(1, 4, 0), step("verify", 4, 0, 40)),
        "ar_all": measured("ar_all", Mode(1, 8, 0), step("verify", 8, 0, 30)),
    }
    found = replay(modes, Setup(hop_ns=1_000_000, link_ns=0))
    assert found["ar"].simulated.steady.verify_ms == pytest.approx(40)
    assert found["ar"].simulated.steady.step_ms == pytest.approx(42)
    assert found["ar"].step_over == pytest.approx(42 / 50)
    assert found["ar_all"].simulated.steady.verify_ms == pytest.approx(30)
    assert found["ar_all"].simulated.num_requests == 16
    assert found["ar_all"].tokens_over == pytest.approx(8 / 0.032 / 100)
    assert json.loads(json.dumps(found["ar"].to_json()))["step_over_measured"]
