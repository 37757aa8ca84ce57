"""Outputs of every mode, k and history of a request beside those of plain decoding: all equal.

Through the services, in fp32 and bf16, greedy and sampled: ar, sd and psd, k from 0 to 6; requests
that are preempted in a pool that is too small; requests that a client continues from tokens that it
holds. In bf16 too, because sums have one order. `--kernels torch` keeps this up to ties only.

    python benchmarks/same_outputs.py [--dtypes float32,bfloat16] [--kernels c] [--json OUT]
"""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minedraft.api import Delta, ResumedSample
from minedraft.bench.machine import describe, in_words
from minedraft.bench.prompts import load_prompts
from minedraft.bench.result import sha256_of
from minedraft.cli.cluster import Cluster, ClusterSpec
from minedraft.client import Client
from minedraft.client.options import build_request
from minedraft.hub.pairs import ensure_pair
from minedraft.transport.channel import open_channel
from minedraft.transport.public_stub import PublicStub
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DATA = Path(__file__).parents[1] / "data" / "spec_bench.jsonl"
NUM_TOKENS = 24
LONG = 80
"""Tokens where requests outgrow what their admission promised them: then some are preempted."""
BATCH = 4
PARAMS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.8, "top_p": 0.95},
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.0},
    {"temperature": 0.8, "top_k": 40},
    {"temperature": 0.0},
    {"temperature": 0.9, "min_p": 0.05},
)
"""One request each: half of them greedy."""
MODES = (
    *((f"sd, k = {k}", Mode(1, BATCH, k)) for k in range(1, 7)),
    *((f"psd, k = {k}", Mode(2, BATCH, k)) for k in range(1, 7)),
    ("psd, k = 0", Mode(2, BATCH, 0)),
    ("ar, one at a time", Mode(1, 1, 0)),
    ("ar, all at once", Mode(1, 2 * BATCH, 0)),
)
SMALL_POOL = 36
"""KV blocks: the prompts of most requests fit, their outputs do not."""
CONTINUED_AT = (1, 7, 16)
"""Tokens that a client holds when it continues."""

Outputs = list[tuple[int, ...]]


def options(index: int, num_tokens: int = NUM_TOKENS) -> dict[str, Any]:
    return {
        "max_tokens": num_tokens,
        "ignore_eos": True,
        "seed": 1000 + index,
        **PARAMS[index % len(PARAMS)],
    }


async def outputs_of(client: Client, prompts: list[str], num_tokens: int = NUM_TOKENS) -> Outputs:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(client.generate(prompt, **options(i, num_tokens)))
            for i, prompt in enumerate(prompts)
        ]
    return [task.result().token_ids for task in tasks]


async def continued(address: str, prompts: list[str], held: Outputs) -> Outputs:
    """Ask for the rest of outputs of which a caller holds the beginning."""
    stub = PublicStub(open_channel(address), streams=open_channel(address))

    async def rest(index: int) -> tuple[int, ...]:
        request = replace(
            build_request(prompts[index], None, options(index)),
            resumed=(ResumedSample(0, held[index]),),
            resume_token=bytes([index + 1]) * 16,
        )
        events = stub.generate(request, timeout_s=120)
        found = [event.token_ids async for event in events if isinstance(event, Delta)]
        return (*held[index], *(token for ids in found for token in ids))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(rest(i)) for i in range(len(prompts))]
    finally:
        await stub.close()
    return [task.result() for task in tasks]


async def switched(client: Client, mode: Mode) -> None:
    while not (await client.status()).is_idle:  # noqa: ASYNC110 the coordinator notifies nobody
        await asyncio.sleep(0.02)
    await client.set_mode(
        num_batches=mode.num_batches,
        max_batch_size=mode.max_batch_size,
        num_draft_tokens=mode.num_draft_tokens,
    )


@asynccontextmanager
async def served(spec: ClusterSpec) -> AsyncIterator[tuple[Cluster, Client]]:
    async with Cluster(spec) as cluster, await Client.connect(cluster.address) as client:
        yield cluster, client


async def measure(dtype: str, args: argparse.Namespace) -> dict[str, Any]:
    pair = ensure_pair("smollm2")
    named: dict[str, Any] = {"kernels": args.kernels} if args.kernels else {}
    spec = ClusterSpec(
        target=str(pair.target_dir),
        draft=str(pair.draft_dir),
        mode=Mode(1, BATCH, 0),
        listen="127.0.0.1:0",
        dtype=dtype,
        num_blocks=256,
        **named,
    )
    prompts = list(load_prompts(DATA, limit=len(PARAMS), max_chars=200))
    found: dict[str, Outputs] = {}
    async with served(spec) as (cluster, client):
        long = await outputs_of(client, prompts, LONG)
        wanted = [ids[:NUM_TOKENS] for ids in long]
        for name, mode in MODES:
            await switched(client, mode)
            found[name] = await outputs_of(client, prompts)
        await switched(client, Mode(2, BATCH, 3))
        for length in CONTINUED_AT:
            held = [ids[:length] for ids in wanted]
            found[f"continued after {length}"] = await continued(cluster.address, prompts, held)
    small = replace(spec, num_blocks=SMALL_POOL, mode=Mode(2, BATCH, 3))
    async with served(small) as (_, client):
        found["preempted"] = await outputs_of(client, prompts, LONG)
        num_preemptions = (await client.status()).counters.num_preemptions
    differing = {
        name: [
            i
            for i, ids in enumerate(outputs)
            if ids != long[i][: len(ids)] or len(ids) < NUM_TOKENS
        ]
        for name, outputs in found.items()
    }
    return {
        "dtype": dtype,
        "outputs_sha256": sha256_of(wanted),
        "num_compared": sum(map(len, found.values())),
        "num_preemptions": num_preemptions,
        "differing": {name: rows for name, rows in differing.items() if rows},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    machine = describe()
    print(in_words(machine))
    results = []
    for dtype in args.dtypes.split(","):
        result = asyncio.run(measure(dtype, args))
        results.append(result)
        num_differing = sum(map(len, result["differing"].values()))
        print(
            f"{dtype}: {num_differing} of {result['num_compared']} outputs differ from plain "
            f"decoding, {result['num_preemptions']} preemptions; "
            f"sha256 {result['outputs_sha256'][:16]} {result['differing'] or ''}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps({"machine": machine, "results": results}, indent=2))


if __name__ == "__main__":
    main()
