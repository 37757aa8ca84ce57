"""The checks of `sched.py`, in the order of the table of docs/results.md."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sched_checks import (
    before,
    caches,
    changes,
    idle,
    policies,
    policies_real,
    reality,
    scores,
    shapes,
    simulated,
)
from sched_checks.check import Check

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, Check] = {
    **{
        f"curve_{pair}_{part}": Check(
            partial(shapes.measure, pair, concurrencies),
            shapes.lines,
            (f"auto against the best of ar, ar_all, sd, psd: {pair}, {part} concurrency",),
        )
        for pair in shapes.WINDOWS
        for part, concurrencies in shapes.CONCURRENCIES.items()
    },
    "ramp": Check(
        changes.ramp,
        changes.ramp_lines,
        ("load ramp 1 to 32 to 1: auto over the best single shape",),
    ),
    "k_back": Check(
        changes.k_back,
        changes.k_back_lines,
        ("acceptance after k 4 to 0 to 4 over before",),
    ),
    "fallback": Check(
        simulated.fallback,
        simulated.fallback_lines,
        ("fallback steps with 2 % aborts and Poisson arrivals; paper rules beside it",),
    ),
    "shared": Check(
        caches.shared,
        caches.shared_lines,
        ("TTFT p50, 32 requests sharing a 512-token prefix, cache over none; outputs equal",),
    ),
    "siblings": Check(
        simulated.siblings,
        simulated.siblings_lines,
        ("prompt tokens fed for n = 8 over n = 1",),
    ),
    "unshared": Check(
        caches.unshared,
        caches.unshared_lines,
        ("throughput without any shared prefix, cache on over off",),
    ),
    "repeated": Check(
        caches.repeated,
        caches.repeated_lines,
        ("acceptance of a repeated prompt over its first run (target and drafter hit)",),
    ),
    "small_pool": Check(
        simulated.small_pool,
        simulated.small_pool_lines,
        ("pool for 60 % of the load: tokens computed twice; preemptions caused by drafts",),
    ),
    "long_prompt": Check(
        changes.long_prompt,
        changes.long_prompt_lines,
        ("longest gap of running streams while 2,000 prompt tokens arrive, over a plain step",),
    ),
    "run_ahead": Check(
        partial(idle.run_ahead, "coder"),
        idle.run_ahead_lines,
        ("1 and 4 requests, one batch: run-ahead over none; over its prediction",),
    ),
    "ngrams": Check(
        partial(idle.ngrams, "coder"),
        idle.ngrams_lines,
        ("no drafter: n-gram drafts over none, text that repeats its prompt, and other text",),
    ),
    **{
        f"reality_{pair}": Check(
            partial(reality.measure, pair),
            reality.lines,
            (f"simulator against reality (ar, sd, psd), {pair}: step time, throughput",),
        )
        for pair in reality.SIZES
    },
    **{
        f"scores_{pair}_{temperature:g}": Check(
            partial(scores.measure, pair, temperature),
            scores.lines,
            (f"AUC of the margin, calibration of survival: {pair}, T = {temperature:g}",),
        )
        for pair in scores.PROMPTS
        for temperature in scores.TEMPERATURES
    },
    "third_batch": Check(
        simulated.third_batch,
        simulated.third_batch_lines,
        ("simulated, t = 1.5 V: three batches and two drafters over two and one",),
    ),
    "speed": Check(
        simulated.speed,
        simulated.speed_lines,
        ("100,000 simulated steps of 2 x 8 with the real core",),
    ),
    "policy_fixed": Check(
        policies.against_fixed,
        policies.against_fixed_lines,
        ("simulated: wcs over the best fixed k, steady and over a load ramp",),
    ),
    "policy_mixed": Check(
        policies.mixed,
        policies.mixed_lines,
        ("simulated, half at 0.9, half at 0.3: wcs over the best fixed k",),
    ),
    "policy_block": Check(
        policies.block,
        policies.block_lines,
        ("simulated block drafter, saturated: wcs over dspark; drafted and never verified",),
    ),
    "policy_slo": Check(
        policies.slo,
        policies.slo_lines,
        ("simulated arrivals: rate at which 95 % keep the SLO, wcs over dspark",),
    ),
    "policy_real": Check(
        policies_real.measure,
        policies_real.lines,
        ("half at 0.9, half at 0.3, and all alike, on services: wcs over the best fixed k",),
    ),
    "policy_cost": Check(
        before.policy_cost,
        before.policy_cost_lines,
        ("planning at 2 x 32, wcs over fixed",),
    ),
    "plan_cost": Check(
        before.plan_cost,
        before.plan_cost_lines,
        ("plan and commit at 2 x 32 and 2 x 128 over the commit before",),
    ),
    "memory": Check(before.memory, before.memory_lines, ("coordinator memory, 2,000 requests",)),
}
"""By name."""
