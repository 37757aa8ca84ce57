"""The prefix cache on real services: what it saves, and what it costs where nothing is shared."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from typing import TYPE_CHECKING, Any

from lines import Line
from steady_load import SteadyLoad

from minedraft.types import Mode
from sched_checks.service import asked, prompts_of, service, spec_of, tokens_per_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from minedraft.cli.cluster import ClusterSpec
    from minedraft.client import Client
    from sched_checks.check import Report

PAIR, ROUNDS = "smollm2", 3
NUM_REQUESTS, PREFIX_TOKENS, OWN_TOKENS = 32, 512, 16
VOCAB = 40_000


def _spec(mode: Mode, *, has_cache: bool) -> ClusterSpec:
    return spec_of(PAIR, mode, num_blocks=2048, prefix_cache=has_cache)


# -- shared -----------------------------------------------------------------------------------


def shared() -> Report:
    """TTFT of requests that share a prefix, with the cache and without, in turns."""
    return asyncio.run(_shared())


async def _shared() -> Report:
    mode, chance = Mode(2, NUM_REQUESTS // 2, 4), random.Random(1)
    report: dict[str, Any] = {"on": [], "off": [], "num_differing": 0}
    async with (
        service(_spec(mode, has_cache=True)) as on,
        service(_spec(mode, has_cache=False)) as off,
    ):
        for _ in range(ROUNDS):
            prefix = [chance.randrange(VOCAB) for _ in range(PREFIX_TOKENS)]
            prompts = [
                [*prefix, *(chance.randrange(VOCAB) for _ in range(OWN_TOKENS))]
                for _ in range(NUM_REQUESTS)
            ]
            outputs = []
            for name, client in (("on", on), ("off", off)):
                found = await asyncio.gather(*(_first_token(client, each) for each in prompts))
                report[name].append(statistics.median(first_s for first_s, _ in found))
                outputs.append([tokens for _, tokens in found])
            report["num_differing"] += sum(a != b for a, b in zip(*outputs, strict=True))
    return report


async def _first_token(client: Client, prompt: list[int]) -> tuple[float, list[int]]:
    begin, first_s, tokens = time.perf_counter(), 0.0, []
    async for delta in client.stream(prompt, max_tokens=8, temperature=0.0, ignore_eos=True):
        if delta.token_ids and not tokens:
            first_s = time.perf_counter() - begin
        tokens += delta.token_ids
    return first_s, tokens


def shared_lines(report: Report) -> Iterator[Line]:
    ratios = [on / off for on, off in zip(report["on"], report["off"], strict=True)]
    text = f"TTFT p50, {NUM_REQUESTS} requests sharing {PREFIX_TOKENS} tokens, cache over none"
    detail = f"{statistics.median(report['on']):.2f} over {statistics.median(report['off']):.2f} s"
    yield Line(text, statistics.median(ratios), 0.30, detail=detail)
    text = f"their outputs that differ, of {ROUNDS * NUM_REQUESTS}"
    yield Line(text, report["num_differing"], 0)


# -- nothing shared ---------------------------------------------------------------------------


def unshared() -> Report:
    """Throughput of prompts that share nothing, with the cache and without, in turns."""
    return asyncio.run(_unshared())


async def _unshared() -> Report:
    mode, chance = Mode(2, 4, 4), random.Random(2)
    prompts = [tuple(chance.randrange(VOCAB) for _ in range(40)) for _ in range(400)]
    report: dict[str, list[float]] = {"on": [], "off": []}
    async with (
        service(_spec(mode, has_cache=True)) as on,
        service(_spec(mode, has_cache=False)) as off,
    ):
        for turn in range(2 * ROUNDS):
            places = [("on", on), ("off", off)]
            for name, client in places if turn % 2 else reversed(places):
                load = SteadyLoad(client, asked(prompts[turn::6], 48), 8)
                async with load.running():
                    report[name].append(await tokens_per_s(load, 1.0, 3.0))
    return report


def unshared_lines(report: Report) -> Iterator[Line]:
    ratios = [on / off for on, off in zip(report["on"], report["off"], strict=True)]
    text = "throughput without any shared prefix, cache on over off"
    detail = f"{len(ratios)} turns, {min(ratios):.2f} to {max(ratios):.2f}"
    yield Line(text, statistics.median(ratios), 0.98, at_most=False, detail=detail)


# -- repeated ---------------------------------------------------------------------------------


def repeated() -> Report:
    """Acceptance of prompts that both workers have seen, over that of their first run."""
    return asyncio.run(_repeated())


async def _repeated() -> Report:
    prompts = prompts_of(PAIR, 8 * ROUNDS, most=200)
    report: dict[str, list[float]] = {"first": [], "again": [], "num_cached_tokens": []}
    async with service(_spec(Mode(2, 4, 4), has_cache=True)) as client:
        for turn in range(ROUNDS):
            own = prompts[turn::ROUNDS]
            for name in ("first", "again"):
                rate, num_cached = await _acceptance(client, own)
                report[name].append(rate)
            report["num_cached_tokens"].append(num_cached)
    return report


async def _acceptance(client: Client, prompts: Sequence[tuple[int, ...]]) -> tuple[float, int]:
    found = await asyncio.gather(
        *(
            client.generate(list(each), max_tokens=64, temperature=0.0, ignore_eos=True)
            for each in prompts
        )
    )
    drafted = sum(each.speculation.num_draft_tokens for each in found)
    accepted = sum(each.speculation.num_accepted_tokens for each in found)
    return accepted / max(drafted, 1), sum(each.usage.num_cached_tokens for each in found)


def repeated_lines(report: Report) -> Iterator[Line]:
    ratios = [b / a for a, b in zip(report["first"], report["again"], strict=True)]
    detail = f"{statistics.median(report['num_cached_tokens']):.0f} prompt tokens were cached"
    text = "acceptance of a repeated prompt over its first run"
    yield Line(text, statistics.median(ratios), 0.98, at_most=False, detail=detail)
