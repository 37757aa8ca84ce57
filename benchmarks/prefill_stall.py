"""What 2,000 prompt tokens cost sequences that decode: their longest gap over a plain step.

Starts the demo pair's services, runs streams in two batches, lets one long prompt arrive, and looks
at the times between two deltas of every stream: before it, and until its first token.

    python benchmarks/prefill_stall.py [--rounds 3] [--prefill-stall 1.5] [--json OUT]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from minedraft.bench.machine import describe, in_words
from minedraft.cli.cluster import Cluster, ClusterSpec
from minedraft.client import Client
from minedraft.hub.pairs import ensure_pair
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

MODES = {"ar": Mode(1, 8, 0), "sd": Mode(1, 8, 4), "psd": Mode(2, 4, 4)}
STREAMS, PROMPT_TOKENS, LONG_TOKENS = 6, 64, 2000
SETTLED_DELTAS = 40
"""Of each stream, before the prompt arrives."""


@dataclass(frozen=True, slots=True)
class Stall:
    """One arrival of a long prompt."""

    plain_ms: float
    """Median time between two deltas of a stream, before it."""
    longest_ms: float
    """Until its first token."""
    ttft_ms: float
    """Of the prompt."""

    @property
    def ratio(self) -> float:
        """The longest gap over a plain one."""
        return self.longest_ms / self.plain_ms


def gaps(times: Sequence[float], begin: float, end: float) -> list[float]:
    """Times between neighbours that end within [begin, end], in ms."""
    return [(later - earlier) * 1e3 for earlier, later in pairwise(times) if begin <= later <= end]


async def arrival(client: Client, seed: int) -> Stall:
    """Let a long prompt arrive beside running streams."""
    times: list[list[float]] = [[] for _ in range(STREAMS)]
    settled = asyncio.Event()

    async def run(index: int) -> None:
        prompt = tuple(
            (seed * 7919 + index * 131 + 3 * i) % 40000 + 100 for i in range(PROMPT_TOKENS)
        )
        stream = client.stream(prompt, max_tokens=1500, temperature=0.0, ignore_eos=True)
        async for delta in stream:
            if delta.token_ids:
                times[index].append(time.perf_counter())
            if all(len(each) > SETTLED_DELTAS for each in times):
                settled.set()

    tasks = [asyncio.create_task(run(index)) for index in range(STREAMS)]
    await settled.wait()
    begin = time.perf_counter()
    long = tuple((seed * 104729 + 17 * i) % 40000 + 100 for i in range(LONG_TOKENS))
    async for delta in client.stream(long, max_tokens=8, temperature=0.0, ignore_eos=True):
        if delta.token_ids:
            break
    end = time.perf_counter()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    before = [gap for each in times for gap in gaps(each, each[SETTLED_DELTAS // 2], begin)]
    during = [gap for each in times for gap in gaps(each, begin, end)]
    return Stall(statistics.median(before), max(during), (end - begin) * 1e3)


async def measure(mode: Mode, rounds: int) -> list[Stall]:
    pair = ensure_pair("smollm2")
    spec = ClusterSpec(
        target=str(pair.target_dir),
        draft=str(pair.draft_dir) if mode.num_draft_tokens else "",
        mode=mode,
        listen="127.0.0.1:0",
    )
    stalls = []
    async with Cluster(spec) as cluster, await Client.connect(cluster.address) as client:
        for seed in range(rounds + 1):
            stalls.append(await arrival(client, seed))
            while not (await client.status()).is_idle:  # noqa: ASYNC110 the coordinator notifies nobody
                await asyncio.sleep(0.02)
    return stalls


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prefill-stall", type=float, default=1.5)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ["MINEDRAFT_PREFILL_STALL"] = str(args.prefill_stall)
    machine = describe()
    print(in_words(machine))
    found = {}
    for name in args.modes.split(","):
        first, *stalls = asyncio.run(measure(MODES[name], args.rounds))
        ratio = statistics.median(stall.ratio for stall in stalls)
        plain = statistics.median(stall.plain_ms for stall in stalls)
        ttft = statistics.median(stall.ttft_ms for stall in stalls)
        found[name] = {"ratio": ratio, "first": asdict(first), "stalls": [*map(asdict, stalls)]}
        print(
            f"{name}: longest gap over a plain one {ratio:.2f} (first {first.ratio:.2f}; plain "
            f"{plain:.0f} ms), TTFT of {LONG_TOKENS} tokens {ttft:.0f} ms",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps({"machine": machine, "modes": found}, indent=2))


if __name__ == "__main__":
    main()
