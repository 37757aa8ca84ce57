"""Policies on real services: requests of two kinds, and one kind, under each in turns."""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lines import Line
from steady_load import Asked, SteadyLoad

from minedraft.types import DebugOptions, Mode
from sched_checks.service import prompts_of, service, set_mode, spec_of, tokens_per_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.client import Client
    from sched_checks.check import Report

PAIR, ROUNDS, TRIAL_S = "smollm2", 3, 10.0
KS = (0, 1, 2, 4, 6, 8)
SETTLE_S, WINDOW_S = 1.0, 2.5
PROMPT_TOKENS, OUTPUT_TOKENS = 32, 96
KINDS = {"mixed": (0.9, 0.3), "steady": (0.75, 0.75)}
"""Acceptance of every other request."""
TARGETS = {("mixed", 8): 1.08, ("mixed", 32): 1.08, ("steady", 2): 0.98, ("steady", 32): 0.98}


def measure() -> Report:
    """Throughput under every fixed k and under the policies that choose."""
    return asyncio.run(_measure())


async def _measure() -> Report:
    report: dict[str, Any] = {}
    spec = spec_of(
        PAIR, Mode(2, 16, KS[-1]), drafter_kind="synthetic", trial_s=TRIAL_S, num_blocks=2048
    )
    async with service(spec) as client:
        for kind, num in TARGETS:
            report[f"{kind} {num}"] = await _in_turns(client, kind, num)
    return report


async def _in_turns(client: Client, kind: str, num: int) -> dict[str, list[float]]:
    requests = await _requests(client, kind)
    found: dict[str, list[float]] = {}
    turns = [*(("fixed", k) for k in KS), ("goodput", KS[-1]), ("wcs", KS[-1])]
    for turn in range(ROUNDS):
        for policy, k in turns[turn:] + turns[:turn]:
            await set_mode(client, Mode(2, -(-num // 2), k, policy=policy))
            load = SteadyLoad(client, requests, num)
            async with load.running():
                speed = await tokens_per_s(load, SETTLE_S, WINDOW_S)
            found.setdefault(f"{policy} {k}", []).append(speed)
    return found


async def _requests(client: Client, kind: str) -> list[Asked]:
    """Requests whose drafter knows the answer, and is right as often as their kind says."""
    await set_mode(client, Mode(2, 16, 0, policy="fixed"))
    load = SteadyLoad(
        client,
        [Asked(each, OUTPUT_TOKENS) for each in prompts_of(PAIR, 64, most=PROMPT_TOKENS)],
        1,
    )
    await load.learn()
    return [
        replace(
            asked,
            options={
                "temperature": 0.0,
                "debug": DebugOptions(
                    reference_token_ids=tuple(answer),
                    synthetic_acceptance=KINDS[kind][index % 2],
                ),
            },
        )
        for index, (asked, answer) in enumerate(zip(load.requests, load.reference, strict=True))
    ]


def lines(report: Report) -> Iterator[Line]:
    for (kind, num), target in TARGETS.items():
        found = report[f"{kind} {num}"]
        fixed = {name: statistics.median(each) for name, each in found.items() if "fixed" in name}
        best = max(fixed, key=lambda name: fixed[name])
        ratios = [a / b for a, b in zip(found[f"wcs {KS[-1]}"], found[best], strict=True)]
        text = "half at 0.9, half at 0.3" if kind == "mixed" else "all at 0.75"
        yield Line(
            f"{PAIR}, {text}, {num} running: wcs over the best fixed k of a sweep",
            statistics.median(ratios), target, at_most=False,
            detail=f"best: {best}; {min(ratios):.2f} to {max(ratios):.2f}",
        )  # fmt: skip
