"""Resident memory of an fp32 verifier after load and 16 requests, with our kernels and without.

A real verifier process, fed through the services. `--before DIR` measures another checkout's too;
without it the figure is compared with `--kernels torch`.

    git archive COMMIT | tar -x -C DIR
    python benchmarks/verifier_memory.py [--before DIR] [--pair smollm2] [--json OUT]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT = 0.65
ROWS, NUM_TOKENS = 16, 32
NUM_BLOCKS = 160
"""All rows fit, and little more: a larger pool is the same memory on both sides."""
PROMPT = list(range(1000, 1100))
HERE = Path(__file__).resolve().parent.parent


def memory_mib(pid: int) -> dict[str, float]:
    """Read what the kernel says of a process, in MiB."""
    fields = {}
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name in {"VmRSS", "RssAnon", "RssFile", "VmHWM"}:
            fields[name] = int(value.split()[0]) / 1024
    return fields


async def measure(pair: str, kernels: str) -> dict[str, float]:
    from minedraft.cli.cluster import Cluster, ClusterSpec
    from minedraft.client import Client
    from minedraft.hub.pairs import ensure_pair
    from minedraft.types import Mode

    named: dict[str, Any] = {"kernels": kernels} if kernels else {}
    spec = ClusterSpec(
        target=str(ensure_pair(pair).target_dir),
        mode=Mode(1, ROWS, 0),
        listen="127.0.0.1:0",
        dtype="float32",
        num_blocks=NUM_BLOCKS,
        **named,
    )
    async with Cluster(spec) as cluster, await Client.connect(cluster.address) as client:
        async with asyncio.TaskGroup() as group:
            for i in range(ROWS):
                prompt = [*PROMPT, 1000 + i]
                group.create_task(
                    client.generate(prompt, temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
                )
        (verifier,) = (await client.status()).workers
        return memory_mib(verifier.identity.pid)


def in_a_process(pair: str, kernels: str, root: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--serve", "--pair", pair, "--kernels", kernels],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=root,  # the services import what lies in their directory
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--pair", default="smollm2")
    parser.add_argument("--kernels", default="c")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        print(json.dumps(asyncio.run(measure(args.pair, args.kernels))))
        return
    from minedraft.bench.machine import describe

    found = {name: in_a_process(args.pair, name, HERE) for name in ("torch", args.kernels)}
    base = "torch"
    if args.before is not None:
        base = "before"
        found[base] = in_a_process(args.pair, "", args.before.resolve())
    ratio = found[args.kernels]["VmRSS"] / found[base]["VmRSS"]
    for name, fields in found.items():
        words = ", ".join(f"{field} {mib:.0f} MiB" for field, mib in fields.items())
        print(f"verifier of {args.pair}, fp32, {name}: {words}")
    print(f"resident, {args.kernels} over {base}: {ratio:.3f}; want <= {LIMIT}")
    if args.json:
        figures = {
            "machine": describe(),
            "pair": args.pair,
            "mib": found,
            "base": base,
            "ratio": ratio,
            "limit": LIMIT,
        }
        args.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
