"""Checks on the simulator: the real core, virtual time, no models. Seconds each, on any machine."""

from __future__ import annotations

import math
import random
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from lines import Line

from minedraft.sim.load import Arrival, Load, steady
from minedraft.sim.report import report as sum_up
from minedraft.sim.setup import Setup
from minedraft.sim.simulation import Simulation
from minedraft.sim.step_costs import FlatCosts
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minedraft.plans import DraftPlan, VerifyPlan
    from minedraft.services.coordinator.core.request import Request
    from sched_checks.check import Report

MS = 1_000_000
SEEDS = (1, 2, 3)
_ARRIVALS_PER_S = 1.0
"""Few enough that both batches are often small, which is where rules differ."""


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


def fallback() -> Report:
    """Poisson arrivals, and callers that leave at 2 % per step: steps that take turns."""
    return {rules: [_turns(rules, seed) for seed in SEEDS] for rules in ("balanced", "paper")}


def _turns(assignment: str, seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    time_s, arrivals = 0.0, []
    for _ in range(600):
        time_s += chance.expovariate(_ARRIVALS_PER_S)
        # Three tokens per step or so; a caller leaves at each with the same probability.
        num_steps = math.ceil(math.log(1 - chance.random()) / math.log(1 - 0.02))
        arrivals.append(
            Arrival(
                60, chance.randint(30, 200), arrival_ns=round(time_s * 1e9),
                abort_after=3 * num_steps,
            )
        )  # fmt: skip
    setup = Setup(mode=Mode(2, 8, 4), assignment=assignment, seed=seed)
    simulation = Simulation(setup, Load(tuple(arrivals)))
    simulation.run()
    counters = simulation.core.counters
    return {
        "num_rotating_steps": counters.num_rotating_steps,
        "num_fallback_steps": counters.num_fallback_steps,
        "num_steps": counters.num_steps,
        "num_aborts": counters.num_finished.get("abort", 0),
    }


def fallback_lines(report: Report) -> Iterator[Line]:
    shares = {
        rules: [run["num_fallback_steps"] / run["num_rotating_steps"] for run in runs]
        for rules, runs in report.items()
    }
    text = "Poisson, 2 % aborts per step: share of steps in turns though both batches could be full"
    detail = f"MineDraft's own rules: {statistics.median(shares['paper']):.3f}"
    yield Line(text, statistics.median(shares["balanced"]), 0.02, detail=detail)


def small_pool() -> Report:
    """Requests in a pool that holds 60 % of them: tokens fed twice, and who is preempted."""
    report = {}
    for name, options in (
        ("on", {"prefix_cache": True}),
        ("off", {"prefix_cache": False}),
        ("on, k = 0", {"prefix_cache": True, "mode": Mode(2, 16, 0)}),
    ):
        runs = [_fed_again(seed, options) for seed in SEEDS]
        report[name] = {
            "fed_again": [run[0] for run in runs],
            "preemptions": [run[1] for run in runs],
            "for_drafts": [run[2] for run in runs],
        }
    return report


def _fed_again(seed: int, options: dict[str, object]) -> tuple[int, int, int]:
    """Committed tokens fed more than once, preemptions, and those of them for drafts."""
    num_again = 0
    computed: dict[str, int] = {}
    """By request: positions that were computed at some time."""

    def planned(_draft: DraftPlan | None, verify: VerifyPlan) -> None:
        nonlocal num_again
        owners = {each.row_id: each.request_id for each in simulation.core.requests.values()}
        for row in verify.rows:
            owner, end = owners[row.row_id], row.num_computed + row.num_feed
            known = computed.get(owner, 0)
            num_again += max(min(known, end) - row.num_computed, 0)
            computed[owner] = max(known, end)

    num_tokens, block = 200, 16
    blocks = int(2 * 16 * (num_tokens / block) * 0.6)
    setup = Setup(mode=Mode(2, 16, 4), num_blocks=blocks, block_size=block, seed=seed)
    simulation = Simulation(
        replace(setup, **options),  # type: ignore[arg-type]
        steady(200, 100, 100, concurrency=32, seed=seed),
        on_plans=planned,
    )
    for_drafts = _count_preemptions_for_drafts(simulation)
    simulation.run()
    return num_again, simulation.core.counters.num_preemptions, for_drafts()


def _count_preemptions_for_drafts(simulation: Simulation) -> Callable[[], int]:
    """Count requests that lose their blocks while blocks are given to drafts."""
    table = simulation.core._table  # noqa: SLF001 the pool that the scheduler asks
    plain, count = table.allocate_drafts, 0

    def watched(request: Request, num_draft_tokens: int) -> int:
        nonlocal count
        before = table.num_preemptions
        found = plain(request, num_draft_tokens)
        count += table.num_preemptions - before
        return found

    table.allocate_drafts = watched  # type: ignore[method-assign]
    return lambda: count


def small_pool_lines(report: Report) -> Iterator[Line]:
    on, off = (statistics.median(report[name]["fed_again"]) for name in ("on", "off"))
    text = "pool for 60 % of the load: tokens fed twice, cache on over off (simulated)"
    yield Line(text, on / max(off, 1), 0.5, detail=f"{on:.0f} over {off:.0f}")
    text = "preemptions while blocks were given to drafts, of all"
    num, num_plain = (sum(report[name]["preemptions"]) for name in ("on", "on, k = 0"))
    detail = f"{num} in all; with k = 0 {num_plain}"
    yield Line(text, sum(report["on"]["for_drafts"]), 0, detail=detail)


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
