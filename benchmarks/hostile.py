"""`make bench-hostile`: hostile callers, strangers, peers, files and networks.

Every check starts three real services with a tiny pair, runs twelve streams, does something bad and
says what came of it, beside its target. Every output is compared with the undisturbed run's.
Traffic stays on 127.0.0.1. Exit code 0 if every line is met.

    python benchmarks/hostile.py [--quick] [--only NAME ...] [--json OUT]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hostile_checks import CHECKS  # noqa: E402 the path comes first
from hostile_checks.pair import make_pair  # noqa: E402
from hostile_checks.stage import Stage, descriptors_for  # noqa: E402
from lines import Line, show, write  # noqa: E402
from rich.console import Console  # noqa: E402

from minedraft.bench.machine import describe, in_words  # noqa: E402

MEMORY_FACTOR = 1.5
CHECK_LIMIT_S = 300.0
console = Console(highlight=False)


async def run(args: argparse.Namespace) -> int:
    descriptors_for(20_000)
    console.print(in_words(describe()))
    work = Path(tempfile.mkdtemp(prefix="minedraft-hostile-"))
    console.print(f"logs: {work}")
    target, draft = await asyncio.to_thread(make_pair, work / "models")
    stage = Stage(target, draft, work, 0.3 if args.quick else 1.0)
    names = args.only or list(CHECKS)
    took: dict[str, float] = {}
    for number, name in enumerate(names, 1):
        console.print(f"{number} of {len(names)}: {name}")
        before, began = len(stage.lines), time.monotonic()
        try:
            async with asyncio.timeout(CHECK_LIMIT_S):
                await CHECKS[name](stage)
        except Exception as err:  # noqa: BLE001 one check's end is not the others'
            traceback.print_exc()
            stage.say(f"{name}: the check did not end well", 1, 0, detail=repr(err)[:300])
        took[name] = time.monotonic() - began
        for line in stage.lines[before:]:
            verdict = "ok" if line.is_met else "MISS"
            console.print(
                f"  {verdict}: {line.text}: {line.figure:.3g} ({line.detail})", markup=False
            )
    if stage.memory:
        worst = max(stage.memory, key=stage.memory.__getitem__)
        lines = [
            *stage.lines,
            Line("coordinator's peak memory over idle", stage.memory[worst], MEMORY_FACTOR,
                 detail=worst),
        ]  # fmt: skip
    else:
        lines = stage.lines
    show(lines, console)
    if args.json:
        write(Path(args.json), lines, {"memory": stage.memory, "seconds": took})
    return 0 if all(line.is_met for line in lines) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="listen to the noise for less time")
    parser.add_argument("--only", nargs="*", choices=list(CHECKS), help="some of the checks")
    parser.add_argument("--json", help="write the figures there")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    raise SystemExit(main())
