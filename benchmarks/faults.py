"""`make bench-faults`: what the loss, return and swap of a service costs running requests.

Three processes over gloo, the smollm2 pair in fp32, a core for each worker, 16 running requests
(fault_costs.py). Every line has its target; every output is compared with the undisturbed run's.

    python benchmarks/faults.py [--quick] [--only NAME ...] [--json OUT]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from fault_costs import BATCH, NUM_BATCHES, NUM_RUNNING, Bench, K
from fault_costs import MEASUREMENTS as COSTS
from fleet import Fleet, is_up, until
from lines import Line, show, write
from rich.console import Console
from rich.progress import Progress
from steady_load import Asked, SteadyLoad
from stopped_drafter import stopped_drafter

from minedraft.bench.machine import describe, in_words
from minedraft.bench.prompts import load_prompts
from minedraft.client import Client
from minedraft.hub.pairs import ensure_pair
from minedraft.services.coordinator.text.tokenizer import Tokenizer

DATA = Path(__file__).parents[1] / "data" / "spec_bench.jsonl"
NUM_TOKENS = 128
MEASUREMENTS = COSTS | {"stopped_drafter": stopped_drafter}
console = Console(highlight=False)


async def run(args: argparse.Namespace) -> int:
    pair = await asyncio.to_thread(ensure_pair, "smollm2")
    tokenizer = await asyncio.to_thread(Tokenizer.from_directory, pair.target_dir)
    prompts = load_prompts(DATA, limit=NUM_RUNNING, max_chars=200)
    requests = [Asked(tuple(tokenizer.encode(p)), NUM_TOKENS) for p in prompts]
    console.print(in_words(describe()))
    lines: list[Line] = []
    fleet = Fleet(
        pair.target_dir,
        pair.draft_dir,
        Path(tempfile.mkdtemp(prefix="minedraft-faults-")),
        workers=("--num-blocks=640",),
        coordinator=(
            f"--num-batches={NUM_BATCHES}",
            f"--max-batch-size={BATCH}",
            f"--num-draft-tokens={K}",
            "--link=gloo",
        ),
        is_pinned=True,
    )
    with Progress(console=console) as progress:
        async with fleet, await Client.connect(fleet.address) as client:
            await until(client, is_up)
            bench = Bench(
                fleet, client, SteadyLoad(client, requests, NUM_RUNNING), args.quick, progress, pair
            )
            task = progress.add_task("undisturbed run", total=1)
            await bench.load.learn()
            progress.advance(task)
            for name in args.only or MEASUREMENTS:
                found = await MEASUREMENTS[name](bench)
                for line in found:
                    progress.console.print(f"{line.text}: {line.figure:.3g} ({line.detail})")
                lines += found
    load = bench.load
    wrong = len(load.failures) + len(load.changed)
    detail = "; ".join([*load.failures, *load.changed][:3])
    lines.append(Line(f"of {load.num_done} requests failed or changed", wrong, 0, detail=detail))
    show(lines, console)
    if args.json:
        write(Path(args.json), lines, bench.raw)
    return 0 if all(line.is_met for line in lines) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--only", nargs="*", choices=list(MEASUREMENTS), help="some of the lines")
    parser.add_argument("--json", help="write the figures there")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    raise SystemExit(main())
