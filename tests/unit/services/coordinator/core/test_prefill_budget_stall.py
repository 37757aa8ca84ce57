"""A long prompt beside running streams, in virtual time: no stream notices it by more than asked.

The core learns costs from the simulated workers alone, as it does from real ones.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise

import pytest

from minedraft.sim.load import Arrival, Load
from minedraft.sim.outputs import AcceptanceModel
from minedraft.sim.setup import Setup
from minedraft.sim.simulation import Simulation
from minedraft.sim.step_costs import LinearCosts
from minedraft.types import Mode

MODES = {"ar": Mode(1, 8, 0), "sd": Mode(1, 8, 4), "psd": Mode(2, 4, 4)}
STREAMS = tuple(Arrival(64, 300) for _ in range(6))
LONG = Arrival(2000, 8, arrival_ns=2_000_000_000)


def gaps(setup: Setup) -> tuple[float, float, float]:
    """Run streams and a long prompt.

    Returns:
        Median gap of a stream before it, longest one until its first token, and its TTFT; ns.
    """
    times: dict[str, list[int]] = {}

    def committed(_result, outcome) -> None:
        if outcome.num_committed_tokens:
            name = outcome.request.request_id
            times.setdefault(name, []).append(simulation.events.now_ns)

    simulation = Simulation(setup, Load((*STREAMS, LONG)), on_commit=committed)
    begin = simulation.begin_ns + LONG.arrival_ns
    simulation.run()
    *streams, last = times
    assert len(streams) == len(STREAMS)
    end = times[last][0]
    before = [
        b - a for each in streams for a, b in pairwise(times[each]) if begin - 1e9 < b < begin
    ]
    during = [b - a for each in streams for a, b in pairwise(times[each]) if begin <= b <= end]
    return statistics.median(before), max(during), end - begin


def setup_of(mode: Mode, **options) -> Setup:
    costs = LinearCosts(20e6, 0.5e6, 2e6, 0.1e6, 1.1)
    return Setup(mode=mode, costs=costs, acceptance=AcceptanceModel((0.7,)), **options)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_the_longest_gap_is_within_twice_a_plain_step(mode):
    plain_ns, longest_ns, ttft_ns = gaps(setup_of(mode))
    assert longest_ns <= 2.0 * plain_ns
    unbound = setup_of(mode, prefill_stall=1000.0)
    _, whole_ns, fast_ns = gaps(unbound)
    assert whole_ns > 3.0 * plain_ns, "without a bound they wait for 512 tokens at a time"
    assert fast_ns < ttft_ns, "the price: the prompt takes longer"


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_prompt_alone_has_the_whole_budget(mode):
    setup = setup_of(mode)
    times = []
    simulation = Simulation(
        setup,
        Load((replace(LONG, arrival_ns=0),)),
        on_commit=lambda _result, _outcome: times.append(simulation.events.now_ns),
    )
    simulation.run()
    num_chunks = -(-LONG.num_prompt_tokens // setup.prefill_budget_tokens)
    fed_ns = num_chunks * 20e6 + LONG.num_prompt_tokens * 0.5e6
    assert times[0] - simulation.begin_ns < 1.3 * fed_ns
