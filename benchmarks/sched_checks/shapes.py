"""Shapes on real services: auto beside each fixed one, by concurrency and over a ramp."""

from __future__ import annotations

import asyncio
import math
import statistics
from typing import TYPE_CHECKING, Any

from lines import Line
from steady_load import SteadyLoad

from minedraft.types import Mode
from sched_checks.service import asked, prompts_of, service, set_mode, spec_of, tokens_per_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from minedraft.client import Client
    from sched_checks.check import Report

CONCURRENCIES = {"low": (1, 2, 4), "high": (8, 16, 32)}
"""Requests that run, in two parts, so that a check is short."""
K, ROUNDS, TRIAL_S = 4, 3, 10.0
WINDOWS = {"smollm2": (0.7, 1.5), "coder": (1.5, 2.5)}
"""By pair: seconds to settle after a change, and seconds that count."""
PROMPT_TOKENS, OUTPUT_TOKENS = 32, 96
NAMES = ("auto", "ar", "ar_all", "sd", "psd")


def mode_of(name: str, concurrency: int) -> Mode:
    """The mode that a name means at so many requests."""
    half = math.ceil(concurrency / 2)
    return {
        "ar": Mode(1, concurrency, 0, "fixed"),
        "sd": Mode(1, concurrency, K, "fixed"),
        "psd": Mode(2, half, K, "fixed"),
        "auto": Mode(2, half, K, "auto"),
    }[name]


def measure(pair: str, concurrencies: Sequence[int]) -> Report:
    """Throughput of every shape at so many requests."""
    return asyncio.run(_measure(pair, concurrencies))


async def _measure(pair: str, concurrencies: Sequence[int]) -> Report:
    found: dict[str, dict[str, Any]] = {}
    spec = spec_of(pair, mode_of("auto", max(concurrencies)), trial_s=TRIAL_S)
    async with service(spec) as client:
        for concurrency in concurrencies:
            found[str(concurrency)] = await _in_turns(client, pair, concurrency)
    async with service(spec.on_all_cores()) as client:
        for concurrency in concurrencies:
            await client.set_mode(num_batches=1, max_batch_size=concurrency, num_draft_tokens=0)
            load = _load(client, pair, concurrency)
            async with load.running():
                found[str(concurrency)]["ar_all"] = [
                    await tokens_per_s(load, *WINDOWS[pair]) for _ in range(ROUNDS)
                ]
    return {"pair": pair, "by_concurrency": found}


async def _in_turns(client: Client, pair: str, concurrency: int) -> dict[str, Any]:
    """Each shape in turn under one load that goes on."""
    names = [name for name in NAMES if name != "ar_all"]
    speeds: dict[str, Any] = {name: [] for name in names}
    load = _load(client, pair, concurrency)
    await set_mode(client, mode_of("ar", concurrency))
    async with load.running():
        for turn in range(ROUNDS):
            for name in names[turn:] + names[:turn]:
                await set_mode(client, mode_of(name, concurrency))
                speeds[name].append(await tokens_per_s(load, *WINDOWS[pair]))
                status = await client.status()
                if not speeds[name][-1]:
                    raise SystemExit(f"{name}: no token came; {status}")
                if name == "auto":
                    speeds["candidates"] = {
                        each.name: each.tokens_per_s for each in status.candidates
                    }
                    speeds.setdefault("chosen", []).append(status.shape.name)
    return speeds


def _load(client: Client, pair: str, concurrency: int) -> SteadyLoad:
    prompts = prompts_of(pair, 64, most=PROMPT_TOKENS)
    return SteadyLoad(client, asked(prompts, OUTPUT_TOKENS), concurrency)


def medians(report: Report) -> dict[int, dict[str, float]]:
    """Median tokens/s by concurrency and name."""
    return {
        int(concurrency): {name: statistics.median(found[name]) for name in NAMES}
        for concurrency, found in report["by_concurrency"].items()
    }


def lines(report: Report) -> Iterator[Line]:
    for concurrency, speeds in medians(report).items():
        found = report["by_concurrency"][str(concurrency)]
        best = max((name for name in NAMES if name != "auto"), key=lambda name: speeds[name])
        where = f"{report['pair']}, {concurrency} running"
        chosen = " / ".join(dict.fromkeys(found["chosen"]))
        detail = f"{speeds['auto']:.0f} over {speeds[best]:.0f} tokens/s ({best}); took {chosen}"
        ratio = speeds["auto"] / speeds[best]
        text = f"{where}: auto over the best fixed shape"
        yield Line(text, ratio, 0.97, at_most=False, detail=detail)
        gain = _two_batches(found["candidates"])
        if gain >= 1.10:
            detail = f"the costs say {gain:.2f} for two batches"
            ratio = speeds["auto"] / max(speeds["ar"], speeds["sd"])
            text = f"{where}: auto over the better of ar and sd"
            yield Line(text, ratio, 1.0, at_most=False, detail=detail)


def _two_batches(candidates: dict[str, float | None]) -> float:
    """What the costs say of two batches over the better of one batch and plain decoding."""
    two = max((figure or 0.0 for name, figure in candidates.items() if "2 batches" in name),
              default=0.0)  # fmt: skip
    rest = max((figure or 0.0 for name, figure in candidates.items() if "batches" not in name),
               default=0.0)  # fmt: skip
    return two / rest if rest else 0.0
