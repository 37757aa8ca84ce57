from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from minedraft.sim.load import Arrival, Load, steady
from minedraft.sim.outputs import AcceptanceModel
from minedraft.sim.report import report
from minedraft.sim.setup import Setup
from minedraft.sim.simulation import Simulation
from minedraft.sim.step_costs import FlatCosts, LinearCosts
from minedraft.types import Mode, RequestId

MS = 1_000_000


def flat(mode, verify_ms, draft_ms, **more):
    """Steps of fixed durations, and messages that take no time."""
    more = {"hop_ns": 0, "link_ns": 0, **more}
    return Setup(mode=mode, costs=FlatCosts(verify_ms * MS, draft_ms * MS), **more)


def ran(setup, load, **options):
    simulation = Simulation(setup, load)
    simulation.run(**options)
    return simulation


def formula(num_batches, num_drafters, verify, draft):
    """Time from step to step: the busiest drafter sets the pace of all batches."""
    if num_batches == 1:
        return verify + draft
    busiest = math.ceil(num_batches / num_drafters)
    return max(verify, draft * busiest / num_batches, (verify + draft) / num_batches)


def by_drafter(num_batches, num_drafters, verify, draft):
    """The same at best where each drafter goes at its own pace: what is ready first is verified."""
    owned = [len(range(d, num_batches, num_drafters)) for d in range(num_drafters)]
    rate = sum(min(1 / draft, count / (verify + draft)) for count in owned)
    return max(verify, 1 / rate)


def is_even(num_batches, num_drafters):
    """Whether all drafters that have a batch have as many."""
    return num_batches % num_drafters == 0 or num_batches < num_drafters


@pytest.mark.parametrize("num_batches", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("num_drafters", [1, 2, 3, 4])
@pytest.mark.parametrize("draft_ms", [5, 10, 15, 30])
def test_a_step_takes_what_the_formula_says(num_batches, num_drafters, draft_ms):
    mode = Mode(num_batches, 2, 3)
    setup = flat(mode, 10, draft_ms, num_drafters=num_drafters, acceptance=AcceptanceModel((1.0,)))
    # No request ends within the run, so every step is full.
    found = report(ran(setup, steady(mode.num_slots, 8, 4000), max_steps=240)).steady
    assert found.num_rows == mode.max_batch_size
    assert found.num_steps > 200
    # The mean, by way of the throughput: with several drafters steps come unevenly.
    step_ms = 1e3 * 2 * (3 + 1) / found.tokens_per_s
    args = (num_batches, num_drafters, 10, draft_ms)
    assert 0.98 * by_drafter(*args) <= step_ms <= 1.02 * formula(*args)
    if is_even(num_batches, num_drafters):
        assert step_ms == pytest.approx(formula(*args), rel=0.02)


def test_a_third_batch_pays_with_a_second_drafter():
    def tokens_per_s(num_batches, num_drafters):
        mode = Mode(num_batches, 8, 4)
        setup = flat(mode, 10, 15, num_drafters=num_drafters)
        return report(ran(setup, steady(mode.num_slots, 16, 200))).steady.tokens_per_s

    assert tokens_per_s(3, 2) >= 1.4 * tokens_per_s(2, 1)


def test_an_imbalance_is_repaired_without_arrivals():
    """The paper's case: one batch empties early and its rules leave the other alone."""
    short = [Arrival(8, 6) for _ in range(4)]
    long = [Arrival(8, 120) for _ in range(4)]
    arrivals = [each for pair in zip(short, long, strict=True) for each in pair]
    simulation = ran(flat(Mode(2, 4, 3), 10, 10), Load(tuple(arrivals)), max_steps=25)
    sizes = [simulation.core.batches.size(batch) for batch in range(2)]
    assert sizes == [2, 2]


@pytest.mark.parametrize("mode", [Mode(2, 8, 4), Mode(1, 8, 0), Mode(3, 4, 2)])
def test_the_same_seed_gives_the_same_bytes(mode):
    def figures(seed):
        setup = Setup(
            mode=mode,
            acceptance=AcceptanceModel((0.8, 0.7), spread=0.5, autocorrelation=0.4),
            seed=seed,
        )
        load = steady(30, 40, 30, rate=20.0, abort_share=0.1, seed=seed)
        return json.dumps(report(ran(setup, load)).to_json())

    assert figures(3) == figures(3)
    assert figures(3) != figures(4)


def test_every_request_gets_its_tokens_whatever_the_shape():
    outputs = []
    for mode in (Mode(1, 4, 0), Mode(2, 4, 4), Mode(3, 2, 7)):
        written = {}

        def note(_result, outcome, written=written):
            request = outcome.request
            written[request.request_id] = tuple(request.output_token_ids)

        setup = Setup(mode=mode, num_drafters=2, num_blocks=24, block_size=4)
        Simulation(setup, steady(9, 11, 17), on_commit=note).run()
        outputs.append(written)
        assert {len(tokens) for tokens in written.values()} == {17}
    assert outputs[0] == outputs[1] == outputs[2]


def test_preempted_requests_come_back():
    simulation = ran(
        Setup(mode=Mode(2, 4, 3), num_blocks=30, block_size=4), steady(12, 20, 30), after_each=None
    )
    assert simulation.core.counters.num_preemptions > 0
    assert {each.reason for each in simulation.served.values()} == {"length"}
    simulation.core.check()


def test_poisson_arrivals_and_aborts_leave_the_core_whole_after_each_event():
    setup = Setup(mode=Mode(2, 4, 3), num_blocks=60, block_size=8, num_drafters=2)
    load = steady(60, 30, 25, rate=30.0, abort_share=0.3, seed=5)
    simulation = Simulation(setup, load)
    simulation.run(after_each=simulation.core.check)
    assert simulation.core.is_idle
    assert simulation.core.blocks.num_used == 0
    assert simulation.core.counters.num_finished["abort"] > 5


def test_an_abort_storm_leaves_the_core_whole():
    simulation = Simulation(Setup(mode=Mode(2, 8, 4)), steady(64, 30, 60, rate=400.0, seed=2))
    for storm in range(8):
        for number in range(1 + storm, 65, 3):
            simulation.events.after(
                (40 + 35 * storm) * MS, lambda n=number: simulation.abort(RequestId(str(n)))
            )
    simulation.run(after_each=simulation.core.check)
    assert simulation.core.counters.num_finished["abort"] > 40
    assert simulation.core.is_idle
    assert simulation.core.blocks.num_used == 0


def test_drafters_that_come_and_go_cost_drafts_and_no_token():
    simulation = Simulation(Setup(mode=Mode(2, 4, 4)), steady(8, 30, 200))
    first = next(iter(simulation.core.sources))
    simulation.events.after(300 * MS, lambda: simulation.lose_drafter(first))
    simulation.events.after(900 * MS, simulation.add_drafter)
    simulation.run(after_each=simulation.core.check)
    assert {each.num_output_tokens for each in simulation.served.values()} == {200}
    assert simulation.drafters[2].busy_ns > 0


def test_a_closed_loop_keeps_so_many_requests_under_way():
    simulation = Simulation(Setup(mode=Mode(2, 8, 2)), steady(40, 8, 10, concurrency=5))
    most = []
    simulation.run(after_each=lambda: most.append(len(simulation.core.requests)))
    assert max(most) == 5
    assert len(simulation.served) == 40


def test_what_cannot_fit_is_refused_and_counted():
    arrivals = (Arrival(10, 10), Arrival(100, 100), Arrival(40_000, 1))
    setup = Setup(mode=Mode(1, 4, 0), num_blocks=8, block_size=16)
    simulation = ran(setup, Load(arrivals))
    assert simulation.num_refused == 2
    assert report(simulation).num_requests == 1


def test_a_full_queue_is_counted():
    simulation = ran(Setup(mode=Mode(1, 1, 0), max_waiting=3), steady(10, 8, 50))
    assert simulation.num_refused == 6


def test_a_run_can_end_early():
    found = report(ran(Setup(), steady(16, 64, 500), max_steps=20))
    assert found.num_steps == 20
    assert found.num_unfinished == 16


def test_the_samples_of_a_request_come_together():
    simulation = ran(Setup(mode=Mode(2, 4, 3)), Load((Arrival(20, 9, num_samples=3),)))
    assert list(simulation.served) == ["1", "1.1", "1.2"]
    assert {each.num_output_tokens for each in simulation.served.values()} == {9}


@pytest.mark.slow
def test_five_thousand_steps_of_two_by_eight_take_seconds():
    """`make bench-sched` holds 100,000 steps to 60 s on an idle core; this is a guard."""
    simulation = Simulation(Setup(mode=Mode(2, 8, 4)), steady(2000, 100, 200))
    begin = time.process_time()
    simulation.run(max_steps=5000)
    assert simulation.core.counters.num_steps == 5000
    assert time.process_time() - begin < 10


def test_linear_costs_grow_with_what_a_step_holds():
    costs = LinearCosts(1000, 10, 100, 1, 1.5)
    assert costs.verify_ns(4, 4, 9, overlapped=0) == 1040
    assert costs.verify_ns(4, 4, 9, overlapped=1) == 1560
    assert costs.draft_ns((4, 4, 2), 6, 9, overlapped=0) == 300 + 12
    assert replace(costs, slowdown=1.0).draft_ns((), 50, 9, overlapped=1) == 150


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("chance", [0.15, 0.8])
def test_modes_that_follow_each_other_under_load_stop_nothing(concurrency, chance):
    half = -(-concurrency // 2)
    modes = [
        Mode(1, concurrency, 0),
        Mode(2, half, 4, "auto"),
        Mode(1, concurrency, 4),
        Mode(2, half, 4),
    ]
    setup = Setup(mode=modes[1], acceptance=AcceptanceModel((chance,)), trial_s=10.0)
    simulation = Simulation(setup, steady(2000, 32, 96, concurrency=concurrency))
    counters, num_tokens = simulation.core.counters, []

    def switch(mode):
        num_tokens.append(counters.num_output_tokens)
        simulation.core.set_mode(mode)
        simulation.schedule()

    switches = [*modes, *reversed(modes), *modes[::2], *modes[1::2]]
    for number, mode in enumerate(switches):
        at_ns = simulation.begin_ns + (1 + number) * 1000 * MS
        simulation.events.at(at_ns, lambda mode=mode: switch(mode))
    simulation.events.run(
        goes_on=lambda: len(num_tokens) < len(switches), after_each=simulation.core.check
    )
    assert all(after > before for before, after in pairwise(num_tokens))
