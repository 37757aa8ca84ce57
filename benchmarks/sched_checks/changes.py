"""Loads and modes that change while requests run: a ramp, k to 0 and back, a long prompt."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lines import Line
from steady_load import SteadyLoad

from minedraft.types import Mode
from sched_checks.service import asked, prompts_of, service, set_mode, spec_of
from sched_checks.shapes import OUTPUT_TOKENS, PROMPT_TOKENS, TRIAL_S, K, mode_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from minedraft.admin import Span
    from minedraft.client import Client
    from sched_checks.check import Report

PAIR, ROUNDS, TIMES_BACK = "smollm2", 3, 12
STAGES = (1, 3, 12, 16)
"""Requests that each stage of the ramp adds, and takes away again: 1, 4, 16, 32, 16, 4, 1."""
STAGE_S = 1.5
MOST = sum(STAGES)


# -- ramp -------------------------------------------------------------------------------------


def ramp() -> Report:
    """A load that rises from 1 to 32 requests and falls again, under each shape."""
    return asyncio.run(_ramp())


async def _ramp() -> Report:
    report: dict[str, Any] = {"tokens_per_s": {}, "worst_step": []}
    spec = spec_of(PAIR, mode_of("auto", MOST), trial_s=TRIAL_S)
    async with service(spec) as client:
        for turn in range(ROUNDS):
            names = ["auto", "ar", "sd", "psd"]
            for name in names[turn:] + names[:turn]:
                await set_mode(client, mode_of(name, MOST))
                begin = time.time_ns()
                speed, switches = await _climb(client)
                report["tokens_per_s"].setdefault(name, []).append(speed)
                if name == "auto":
                    spans = await client.timeline(max_spans=20_000, since_unix_ns=begin)
                    report["worst_step"].append(worst_step(spans, switches))
    async with service(spec.on_all_cores()) as client:
        await client.set_mode(num_batches=1, max_batch_size=MOST, num_draft_tokens=0)
        report["tokens_per_s"]["ar_all"] = [(await _climb(client))[0] for _ in range(ROUNDS)]
    return report


async def _climb(client: Client) -> tuple[float, list[int]]:
    """Go up and down once; return tokens/s, and when the shape changed (Unix ns)."""
    prompts = prompts_of(PAIR, 64, most=PROMPT_TOKENS)
    loads = [SteadyLoad(client, asked(prompts[i::4], OUTPUT_TOKENS), n)
             for i, n in enumerate(STAGES)]  # fmt: skip
    switches: list[int] = []
    watcher = asyncio.create_task(_watch(client, switches))
    begin = time.perf_counter()
    await _stage(loads)
    seconds = time.perf_counter() - begin
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)
    num_tokens = sum(count for load in loads for _, _, count in load.arrivals)
    return num_tokens / seconds, switches


async def _stage(loads: Sequence[SteadyLoad]) -> None:
    """Add a load, go on with the others, and take it away."""
    async with loads[0].running():
        await asyncio.sleep(STAGE_S)
        if len(loads) > 1:
            await _stage(loads[1:])
            await asyncio.sleep(STAGE_S)


async def _watch(client: Client, switches: list[int]) -> None:
    known = (await client.status()).counters.num_shape_switches
    while True:
        await asyncio.sleep(0.05)
        now = (await client.status()).counters.num_shape_switches
        if now != known:
            known = now
            switches.append(time.time_ns())


def worst_step(spans: Sequence[Span], switches: Sequence[int]) -> float:
    """Longest step near a switch over its longer neighbour; 0: no switch, or none of a kind.

    Steps that feed prompts are left out: a prompt is no matter of the shape.
    """
    verifies = sorted(
        (span for span in spans if span.lane == "verify" and span.num_rows),
        key=lambda span: span.start_ns,
    )
    periods = [
        (b.start_ns, b.start_ns - a.start_ns)
        for a, b in pairwise(verifies)
        if not a.num_prefill_rows and not b.num_prefill_rows
    ]
    worst = 0.0
    for index in range(1, len(periods) - 1):
        at, length = periods[index]
        if any(abs(at - switch) < 300_000_000 for switch in switches):
            neighbour = max(periods[index - 1][1], periods[index + 1][1])
            worst = max(worst, length / neighbour)
    return worst


def ramp_lines(report: Report) -> Iterator[Line]:
    speeds = {name: statistics.median(found) for name, found in report["tokens_per_s"].items()}
    best = max((name for name in speeds if name != "auto"), key=lambda name: speeds[name])
    text = "load ramp 1 to 32 to 1, smollm2: auto over the best single shape"
    detail = f"{speeds['auto']:.0f} over {speeds[best]:.0f} tokens/s ({best})"
    yield Line(text, speeds["auto"] / speeds[best], 1.0, at_most=False, detail=detail)
    text = "longest step at a switch over its longer neighbour"
    yield Line(text, statistics.median(report["worst_step"]), 2.0)


# -- k to 0 and back --------------------------------------------------------------------------


def k_back() -> Report:
    """Acceptance of the first steps after k was 0 for a while."""
    return asyncio.run(_k_back())


async def _k_back() -> Report:
    report: dict[str, list[tuple[int, int]]] = {"before": [], "after": []}
    spec = spec_of(PAIR, Mode(2, 8, K, "fixed"))
    prompts = prompts_of(PAIR, 64, most=PROMPT_TOKENS)
    async with service(spec) as client:
        load = SteadyLoad(client, asked(prompts, 900), 16)
        async with load.running():
            await asyncio.sleep(3.0)
            for _ in range(TIMES_BACK):
                begin = time.time_ns()
                await asyncio.sleep(1.0)
                report["before"].append(_stood(await _drafted(client, begin)))
                await set_mode(client, Mode(2, 8, 0, "fixed"))
                await asyncio.sleep(1.0)
                begin = time.time_ns()
                await set_mode(client, Mode(2, 8, K, "fixed"))
                await asyncio.sleep(1.0)
                report["after"].append(_stood((await _drafted(client, begin))[:5]))
    return report


async def _drafted(client: Client, since_ns: int) -> list[Span]:
    """Verify steps since a time that were to have drafts."""
    spans = await client.timeline(max_spans=20_000, since_unix_ns=since_ns)
    found = [span for span in spans if span.lane == "verify" and span.num_draft_tokens]
    return sorted(found, key=lambda span: span.start_ns)


def _stood(spans: Sequence[Span]) -> tuple[int, int]:
    """Drafts that stood, and all drafts."""
    return (
        sum(span.num_accepted_tokens for span in spans),
        sum(span.num_draft_tokens for span in spans),
    )


def k_back_lines(report: Report) -> Iterator[Line]:
    # Five steps have some 25 drafts that stand: only the sums of many times say anything.
    sums = {name: [sum(column) for column in zip(*report[name], strict=True)] for name in report}
    before, after = (sums[name][0] / max(sums[name][1], 1) for name in ("before", "after"))
    text = "acceptance of 5 steps after k 4 to 0 to 4 over before"
    detail = f"{len(report['after'])} times: {after:.3f} over {before:.3f}"
    yield Line(text, after / before if before else 0.0, 0.95, at_most=False, detail=detail)


# -- a long prompt ----------------------------------------------------------------------------


def long_prompt() -> Report:
    """Gaps of running streams while a prompt of 2,000 tokens arrives."""
    return asyncio.run(_long_prompt())


async def _long_prompt() -> Report:
    report: dict[str, list[float]] = {"plain_ms": [], "longest_ms": []}
    chance = random.Random(3)
    prompts = prompts_of(PAIR, 64, most=PROMPT_TOKENS)
    async with service(spec_of(PAIR, Mode(2, 8, K), num_blocks=2048)) as client:
        load = SteadyLoad(client, asked(prompts, 1500), 8)
        async with load.running():
            await asyncio.sleep(3.0)
            for _ in range(ROUNDS):
                begin = time.time_ns()
                await asyncio.sleep(1.5)
                plain = _gaps_ms(load, begin, time.time_ns())
                report["plain_ms"].append(statistics.median(plain))
                begin = time.time_ns()
                await client.generate(
                    [chance.randrange(40_000) for _ in range(2000)], max_tokens=1, temperature=0.0
                )
                report["longest_ms"].append(max(_gaps_ms(load, begin, time.time_ns())))
                await asyncio.sleep(0.5)
    return report


def _gaps_ms(load: SteadyLoad, begin_ns: int, end_ns: int) -> list[float]:
    """Times between the deltas of each stream in a window."""
    times: dict[int, list[int]] = {}
    for at, slot, _ in load.arrivals:
        if begin_ns <= at <= end_ns:
            times.setdefault(slot, []).append(at)
    return [(b - a) / 1e6 for found in times.values() for a, b in pairwise(found)]


def long_prompt_lines(report: Report) -> Iterator[Line]:
    pairs = zip(report["longest_ms"], report["plain_ms"], strict=True)
    ratios = [longest / plain for longest, plain in pairs]
    text = "longest gap of 8 streams while 2,000 prompt tokens arrive, over a plain step"
    longest, plain = (statistics.median(report[name]) for name in ("longest_ms", "plain_ms"))
    yield Line(text, statistics.median(ratios), 2.0, detail=f"{longest:.0f} over {plain:.0f} ms")
