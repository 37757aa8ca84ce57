from __future__ import annotations

import pytest

from minedraft.sim.load import Arrival, Load
from minedraft.sim.outputs import AcceptanceModel
from minedraft.sim.report import report
from minedraft.sim.setup import Setup
from minedraft.sim.simulation import Simulation
from minedraft.sim.step_costs import FlatCosts
from minedraft.types import Mode


def test_the_figures_of_a_run_that_can_be_counted_by_hand():
    setup = Setup(
        mode=Mode(1, 1, 3),
        costs=FlatCosts(10_000_000, 5_000_000),
        acceptance=AcceptanceModel((1.0,)),
        hop_ns=0,
        link_ns=0,
    )
    # A prefill of 10 ms gives the first token, then two steps of 15 ms four tokens each.
    simulation = Simulation(setup, Load((Arrival(8, 9), Arrival(8, 9, arrival_ns=50_000_000))))
    simulation.run()
    found = report(simulation)
    assert found.num_output_tokens == 18
    assert found.duration_s == pytest.approx(0.090)
    assert found.tokens_per_s == pytest.approx(200)
    assert found.num_steps == 6
    assert found.tokens_per_row_step == 4
    assert found.acceptance_rate == 1
    assert found.ttft_ms_p50 == pytest.approx(10)
    assert found.tpot_ms_p50 == pytest.approx(30 / 8)
    assert found.e2e_ms_p50 == pytest.approx(40)
    assert found.longest_gap_ms == pytest.approx(15)
    assert found.verifier_busy == pytest.approx(60 / 90)
    assert found.finished == {"length": 2}


def test_a_run_of_nothing_has_figures_too():
    simulation = Simulation(Setup(), Load(()))
    simulation.run()
    assert report(simulation).tokens_per_s == 0
