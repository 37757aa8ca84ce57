"""Checks on the simulator: the real core, virtual time, no models. Seconds each, on any machine."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from lines import Line

from minedraft.sim.load import Arrival, Load, steady
from minedraft.sim.report import report as sum_up
from minedraft.sim.simulation import Setup, Simulation
from minedraft.sim.step_costs import FlatCosts
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.plans import DraftPlan, VerifyPlan
    from sched_checks.check import Report

MS = 1_000_000
SEEDS = (1, 2, 3)


def third_batch() -> Report:
    """Three batches and two drafters against two and one, drafts of 1.5 V."""
    ratios = []
    for seed in SEEDS:
        speeds = []
        for num_batches, num_drafters in ((3, 2), (2, 1)):
            mode = Mode(num_batches, 8, 4)
            setup = Setup(
                mode=mode, num_drafters=num_drafters, costs=FlatCosts(20 * MS, 30 * MS), seed=seed
            )
            simulation = Simulation(setup, steady(mode.num_slots, 100, 300))
            simulation.run()
            speeds.append(sum_up(simulation).steady.tokens_per_s)
        ratios.append(speeds[0] / speeds[1])
    return {"ratios": ratios}


def third_batch_lines(report: Report) -> Iterator[Line]:
    text = "simulated, t = 1.5 V: three batches and two drafters over two and one"
    yield Line(text, statistics.median(report["ratios"]), 1.4, at_most=False)


def speed() -> Report:
    """CPU time of 100,000 steps of 2 x 8."""
    simulation = Simulation(Setup(mode=Mode(2, 8, 4)), steady(60_000, 100, 200, concurrency=64))
    begin = time.process_time()
    simulation.run(max_steps=100_000)
    taken = time.process_time() - begin
    return {"cpu_s": taken, "num_steps": simulation.core.counters.num_steps}


def speed_lines(report: Report) -> Iterator[Line]:
    text = f"{report['num_steps']:,} simulated steps of 2 x 8, CPU s"
    yield Line(text, report["cpu_s"], 60.0)


def small_pool() -> Report:
    """Requests in a pool that holds 60 % of them: tokens fed twice, and who is preempted why."""
    found = {}
    for name, k in (("k = 4", 4), ("k = 0", 0)):
        runs = [_fed_again(k, seed) for seed in SEEDS]
        found[name] = {
            "fed_again": statistics.median(run[0] for run in runs),
            "preemptions": statistics.median(run[1] for run in runs),
        }
    return found


def _fed_again(k: int, seed: int, **options: object) -> tuple[int, int]:
    """Committed tokens fed more than once, and preemptions."""
    fed: dict[int, int] = {}

    def planned(_draft: DraftPlan | None, verify: VerifyPlan) -> None:
        for row in verify.rows:
            fed[0] = fed.get(0, 0) + row.num_feed

    rows, num_tokens, block = 16, 200, 16
    blocks = int(2 * rows * (num_tokens / block) * 0.6)
    setup = Setup(mode=Mode(2, rows, k), num_blocks=blocks, block_size=block, seed=seed)
    setup = replace(setup, **options)  # type: ignore[arg-type]
    load = steady(200, 100, 100, concurrency=2 * rows, seed=seed)
    simulation = Simulation(setup, load, on_plans=planned)
    simulation.run()
    # Each sequence must feed all its tokens but the last one once.
    needed = sum(100 + each.num_output_tokens - 1 for each in simulation.served.values())
    return fed[0] - needed, simulation.core.counters.num_preemptions


def siblings() -> Report:
    """Prompt tokens fed for eight samples of a prompt, and for one."""
    return {n: _prompt_fed(n) for n in ("1", "8")}


def _prompt_fed(num_samples: str) -> int:
    total = 0

    def planned(_draft: DraftPlan | None, verify: VerifyPlan) -> None:
        nonlocal total
        total += sum(
            min(row.num_feed, max(num_prompt - row.num_computed, 0)) for row in verify.rows
        )

    num_prompt = 512
    setup = Setup(mode=Mode(2, 8, 4))
    arrivals = (Arrival(num_prompt, 32, num_samples=int(num_samples)),)
    Simulation(setup, Load(arrivals), on_plans=planned).run()
    return total


def siblings_lines(report: Report) -> Iterator[Line]:
    text = "prompt tokens fed for n = 8 over n = 1"
    detail = f"{report['8']} over {report['1']}"
    yield Line(text, report["8"] / report["1"], 1.3, detail=detail)
