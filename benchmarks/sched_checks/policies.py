"""What policies decide, on the simulator: the real core, virtual time, no models.

Each line is a ratio of two policies under one load, one seed after another: the simulated target
writes the same tokens for both, and the same drafts stand.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lines import Line

from minedraft.sim.load import Arrival, Load, steady
from minedraft.sim.outputs import AcceptanceModel
from minedraft.sim.setup import Setup
from minedraft.sim.simulation import Simulation
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sched_checks.check import Report

SEEDS = (1, 2, 3)
KS = (0, 1, 2, 3, 4, 6, 8, 10)
"""Of the sweep; the last one bounds the policies that choose."""
TRIAL_S = 10.0
MIXED = AcceptanceModel((0.65,), effects=(1.578, -1.466))
"""0.9 and 0.3 in turn: the logits of both over that of 0.65."""
OUTPUT_TOKENS, MIXED_STEPS = 160, 600


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """A drafter that makes all drafts of a step in one pass, whatever they are worth."""

    verify_base_ns: float
    verify_token_ns: float
    draft_base_ns: float
    draft_token_ns: float
    """Per draft, of all rows."""

    def verify_ns(
        self, num_tokens: int, num_rows: int, context: int, *, overlapped: float
    ) -> float:
        """See `StepCosts`."""
        del num_rows, context, overlapped
        return self.verify_base_ns + self.verify_token_ns * num_tokens

    def draft_ns(
        self,
        rows_per_depth: Sequence[int],
        num_catch_up_tokens: int,
        context: int,
        *,
        overlapped: float,
    ) -> float:
        """See `StepCosts`."""
        del num_catch_up_tokens, context, overlapped
        return self.draft_base_ns + self.draft_token_ns * sum(rows_per_depth)


def simulate(
    policy: str, k: int, load: Load, setup: Setup, *, max_steps: int | None = None
) -> Simulation:
    """Run a load under a policy."""
    mode = replace(setup.mode, num_draft_tokens=k, policy=policy)
    simulation = Simulation(replace(setup, mode=mode, trial_s=TRIAL_S), load)
    simulation.run(max_steps=max_steps)
    return simulation


def speed(simulation: Simulation) -> float:
    """Output tokens per virtual second."""
    return simulation.core.counters.num_output_tokens / simulation.duration_ns * 1e9


def closed(concurrency: int, seed: int, num_tokens: int = OUTPUT_TOKENS) -> Load:
    """A loop of requests that never run together."""
    return steady(12 * concurrency, 64, num_tokens, concurrency=concurrency, seed=seed)


def forever(num_requests: int) -> Load:
    """Requests that all run to the end of the simulation: half of the rows are of each kind."""
    return Load(tuple(Arrival(64, 8000) for _ in range(num_requests)))


def ramp(seed: int) -> Load:
    """Requests that come ever faster, and then slower: about 1 to 64 at once."""
    chance, time_s, arrivals = random.Random(seed), 0.0, []
    for rate, seconds in ((0.3, 30), (1.2, 15), (5, 10), (12, 8), (5, 10), (1.2, 15), (0.3, 30)):
        end_s = time_s + seconds
        while (time_s := time_s + chance.expovariate(rate)) < end_s:
            arrivals.append(Arrival(64, OUTPUT_TOKENS, arrival_ns=round(time_s * 1e9)))
        time_s = end_s
    return Load(tuple(arrivals))


def mean_time_per_token(simulation: Simulation) -> float:
    """Virtual ns from arrival to the end per output token, mean of all requests."""
    served = simulation.served.values()
    return statistics.mean(
        (each.last_ns - each.arrived_ns) / max(each.num_output_tokens, 1) for each in served
    )


# -- one fixed k ------------------------------------------------------------------------------


def against_fixed() -> Report:
    """`wcs` against every fixed k, steady at low and high load, and over a ramp."""
    report: dict[str, Any] = {}
    for name, size in (("low", 1), ("high", 16), ("ramp", 32)):
        setup = Setup(mode=Mode(2, size, 0), acceptance=AcceptanceModel((0.75, 0.7, 0.65)))
        found: dict[str, list[float]] = {}
        for seed in SEEDS:
            load = ramp(seed) if name == "ramp" else closed(2 * size, seed)
            here = replace(setup, seed=seed)
            for policy, k in [*(("fixed", k) for k in KS), ("goodput", KS[-1]), ("wcs", KS[-1])]:
                run = simulate(policy, k, load, here)
                # An open load takes as long as it takes: how long its requests wait tells.
                figure = 1e9 / mean_time_per_token(run) if name == "ramp" else speed(run)
                found.setdefault(f"{policy} {k}", []).append(figure)
        report[name] = found
    return report


def against_fixed_lines(report: Report) -> Iterator[Line]:
    for name, target in (("low", 0.98), ("high", 0.98), ("ramp", 1.02)):
        found = report[name]
        ratio, best = over_best_fixed(found)
        what = "requests' tokens/s" if name == "ramp" else "tokens/s"
        text = {"low": "steady, 2 requests", "high": "steady, 32", "ramp": "load ramp 1 to 64"}[
            name
        ]
        detail = f"best: {best}; goodput {over_best_fixed(found, 'goodput')[0]:.3f}"
        yield Line(
            f"simulated, {text}: {what}, wcs over the best fixed k of a sweep",
            ratio, target, at_most=False, detail=detail,
        )  # fmt: skip


def over_best_fixed(found: dict[str, list[float]], policy: str = "wcs") -> tuple[float, str]:
    """Median over seeds; the best fixed k is that of the medians."""
    fixed = {name: statistics.median(each) for name, each in found.items() if "fixed" in name}
    best = max(fixed, key=lambda name: fixed[name])
    mine = found[f"{policy} {KS[-1]}"]
    return statistics.median(a / b for a, b in zip(mine, found[best], strict=True)), best


# -- requests of two kinds --------------------------------------------------------------------


def mixed() -> Report:
    """Half of the requests at acceptance 0.9, half at 0.3."""
    report: dict[str, Any] = {}
    for size in (4, 16):
        found: dict[str, list[float]] = {}
        for seed in SEEDS:
            setup = Setup(mode=Mode(2, size, 0), acceptance=MIXED, seed=seed, num_blocks=20_000)
            for policy, k in [*(("fixed", k) for k in KS), ("goodput", KS[-1]), ("wcs", KS[-1])]:
                run = simulate(policy, k, forever(2 * size), setup, max_steps=MIXED_STEPS)
                found.setdefault(f"{policy} {k}", []).append(speed(run))
        report[str(2 * size)] = found
    return report


def mixed_lines(report: Report) -> Iterator[Line]:
    for num, found in report.items():
        ratio, best = over_best_fixed(found)
        text = f"simulated, half at 0.9, half at 0.3, {num} running: wcs over the best fixed k"
        yield Line(text, ratio, 1.10, at_most=False, detail=f"best: {best}")


# -- a block drafter --------------------------------------------------------------------------

BLOCK_ROWS, BLOCK = 32, 8
BLOCK_COSTS = BlockCosts(20e6, 0.35e6, 2e6, 0.1e6)
"""So that a draft step takes about 0.4 of a verify step under `dspark`."""


def block() -> Report:
    """`wcs` against `dspark` and plain decoding, one saturated batch with a block drafter."""
    report: dict[str, Any] = {"tokens_per_s": {}, "unverified": {}, "t_over_v": []}
    for seed in SEEDS:
        setup = Setup(
            mode=Mode(1, BLOCK_ROWS, 0),
            acceptance=AcceptanceModel((0.75, 0.7, 0.65), spread=1.2),
            costs=BLOCK_COSTS,
            seed=seed,
        )
        for policy, k in (("fixed", 0), ("fixed", BLOCK), ("dspark", BLOCK), ("wcs", BLOCK)):
            run = simulate(policy, k, closed(BLOCK_ROWS, seed), setup)
            name = f"{policy} {k}"
            report["tokens_per_s"].setdefault(name, []).append(speed(run))
            counters = run.core.counters
            num = counters.num_drafted_tokens - counters.num_draft_tokens
            report["unverified"].setdefault(name, []).append(
                num / max(counters.num_output_tokens, 1)
            )
            if policy == "dspark":
                busy = sum(drafter.busy_ns for drafter in run.drafters.values())
                report["t_over_v"].append(busy / run.verifier.busy_ns)
    return report


def block_lines(report: Report) -> Iterator[Line]:
    speeds = report["tokens_per_s"]
    wcs, dspark = speeds[f"wcs {BLOCK}"], speeds[f"dspark {BLOCK}"]
    ratio = statistics.median(a / b for a, b in zip(wcs, dspark, strict=True))
    plain = statistics.median(a / b for a, b in zip(wcs, speeds["fixed 0"], strict=True))
    share = statistics.median(report["t_over_v"])
    yield Line(
        f"simulated block drafter, {BLOCK_ROWS} rows, saturated: wcs over dspark",
        ratio, 1.15, at_most=False,
        detail=f"t = {share:.2f} V under dspark; over plain decoding {plain:.2f}; "
        "ForeSpark reports up to 1.77 and 2.49",
    )  # fmt: skip
    unverified = report["unverified"]
    mine, theirs = (statistics.median(unverified[f"{name} {BLOCK}"]) for name in ("wcs", "dspark"))
    yield Line(
        "drafted and never verified, per output token: wcs over dspark",
        mine / theirs, 0.5, detail=f"{mine:.2f} over {theirs:.2f}",
    )  # fmt: skip


# -- arrivals as in a trace -------------------------------------------------------------------

PROMPTS = (2, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2735, 14050)
OUTPUTS = (7, 54, 77, 91, 103, 129, 177, 384, 400, 424, 1000)
"""Deciles of the conversations of the public Azure trace of 2023."""
SLO_MS, SLO_SHARE, NUM_ARRIVALS = 60.0, 0.95, 400


def trace(rate: float, seed: int) -> Load:
    """Poisson arrivals of requests as long as those of the trace; long prompts are cut."""
    chance, time_s, arrivals = random.Random(seed), 0.0, []
    for _ in range(NUM_ARRIVALS):
        time_s += chance.expovariate(rate)
        sizes = [_drawn(deciles, chance) for deciles in (PROMPTS, OUTPUTS)]
        arrivals.append(Arrival(min(sizes[0], 2000), sizes[1], arrival_ns=round(time_s * 1e9)))
    return Load(tuple(arrivals))


def _drawn(deciles: Sequence[int], chance: random.Random) -> int:
    place = chance.random() * (len(deciles) - 1)
    low = int(place)
    return round(deciles[low] + (deciles[low + 1] - deciles[low]) * (place - low))


def kept(policy: str, rate: float, seed: int) -> float:
    """Share of requests whose time per output token, from arrival to end, keeps the SLO."""
    setup = Setup(
        mode=Mode(1, 64, 0),
        acceptance=AcceptanceModel((0.75, 0.7, 0.65), spread=1.2),
        costs=BLOCK_COSTS,
        num_blocks=16_384,
        seed=seed,
    )
    run = simulate(policy, BLOCK, trace(rate, seed), setup)
    served = run.served.values()
    good = [
        (each.last_ns - each.arrived_ns) / max(each.num_output_tokens, 1) <= SLO_MS * 1e6
        for each in served
    ]
    return sum(good) / len(good)


def slo() -> Report:
    """Highest rate at which requests keep the SLO, by policy."""
    return {policy: [_most_rate(policy, seed) for seed in SEEDS] for policy in ("dspark", "wcs")}


def _most_rate(policy: str, seed: int) -> float:
    low, high = 0.25, 16.0
    for _ in range(7):
        middle = math.sqrt(low * high)
        if kept(policy, middle, seed) >= SLO_SHARE:
            low = middle
        else:
            high = middle
    return low


def slo_lines(report: Report) -> Iterator[Line]:
    ratio = statistics.median(a / b for a, b in zip(report["wcs"], report["dspark"], strict=True))
    wcs, dspark = (statistics.median(report[name]) for name in ("wcs", "dspark"))
    yield Line(
        f"simulated arrivals, sizes of the Azure trace: rate at which {SLO_SHARE:.0%} keep "
        f"{SLO_MS:.0f} ms per token, wcs over dspark",
        ratio, 1.10, at_most=False,
        detail=f"{wcs:.2f} over {dspark:.2f} requests/s; ForeSpark reports 1.51",
    )  # fmt: skip
