"""Resident memory of the coordinator over 2,000 short requests, through real services.

python benchmarks/memory.py [--requests N] [--json OUT]
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from rich.progress import Progress

from minedraft.bench.machine import describe, in_words
from minedraft.cli.cluster import Cluster, ClusterSpec
from minedraft.client import Client
from minedraft.hub.pairs import ensure_pair
from minedraft.types import Mode

MAX_MIB, MAX_GROWTH = 300.0, 0.05
CONCURRENCY, WARM_UP = 16, 200


async def measure(num_requests: int) -> dict[str, Any]:
    pair = ensure_pair("smollm2")
    spec = ClusterSpec(
        target=str(pair.target_dir),
        draft=str(pair.draft_dir),
        mode=Mode(2, 8, 2),
        listen="127.0.0.1:0",
        dtype="bfloat16",
    )
    async with Cluster(spec) as cluster, await Client.connect(cluster.address) as client:
        slots = asyncio.Semaphore(CONCURRENCY)

        async def one(index: int) -> None:
            async with slots:
                await client.generate(f"Request number {index}: say", max_tokens=2, temperature=0)

        async def many(first: int, count: int, progress: Progress) -> int:
            task = progress.add_task(f"requests {first}..{first + count - 1}", total=count)
            async with asyncio.TaskGroup() as group:
                for index in range(first, first + count):
                    group.create_task(one(index)).add_done_callback(
                        lambda _task: progress.advance(task)
                    )
            return (await client.status()).rss_bytes

        with Progress() as progress:
            before = await many(0, WARM_UP, progress)
            after = await many(WARM_UP, num_requests, progress)
        status = await client.status()
    return {
        "num_requests": num_requests,
        "rss_mib_before": before / 2**20,
        "rss_mib_after": after / 2**20,
        "growth": after / before - 1,
        "num_blocks_used": status.num_blocks_used,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    report = asyncio.run(measure(args.requests)) | {"machine": describe()}
    fits = report["rss_mib_after"] <= MAX_MIB
    steady = report["growth"] <= MAX_GROWTH
    print(in_words(report["machine"]))
    verdict = "OK" if fits else "MISS"
    print(f"coordinator: {report['rss_mib_after']:.0f} MiB (want <= {MAX_MIB:.0f}) {verdict}")
    print(
        f"growth over {args.requests} short requests: {report['growth']:.1%} "
        f"(want <= {MAX_GROWTH:.0%}) {'OK' if steady else 'MISS'}"
    )
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
