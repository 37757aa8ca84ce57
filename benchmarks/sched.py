"""`make bench-sched`: what the scheduler promises, each line beside its target.

Shapes, caches, memory, prefill and the simulator: ratios within one run, medians of at least three.
Each check runs in a process of its own. The figures go to out/bench/sched/*.json, and from there
`benchmarks/tables.py` draws docs/results.md. The machine should be idle. A check that this
checkout has nothing for prints "not built".

    python benchmarks/sched.py [--only NAME ...] [--skip NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

from lines import Line, show, write  # noqa: E402 the path comes first
from rich.console import Console  # noqa: E402
from sched_checks import CHECKS  # noqa: E402

from minedraft.bench.machine import describe, in_words  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OUT = ROOT / "out" / "bench" / "sched"
console = Console(highlight=False)


def lines_of(directory: Path = OUT, names: Sequence[str] = tuple(CHECKS)) -> Iterator[Line]:
    """Read the lines of the checks whose figures are there."""
    for name in names:
        path = directory / f"{name}.json"
        if path.exists():
            yield from CHECKS[name].lines(json.loads(path.read_text(encoding="utf-8"))["report"])


def run_one(name: str) -> None:
    """Measure here, and write the figures."""
    begin = time.monotonic()
    report = CHECKS[name].measure()
    document = {"machine": describe(), "seconds": time.monotonic() - begin, "report": report}
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", nargs="*", choices=CHECKS, default=list(CHECKS))
    parser.add_argument("--skip", nargs="*", choices=CHECKS, default=[])
    parser.add_argument("--check", choices=CHECKS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.check:
        run_one(args.check)
        return 0
    console.print(in_words(describe()))
    names = [name for name in args.only if name not in args.skip]
    done, failed, unbuilt = [], [], []
    for number, name in enumerate(names, 1):
        console.rule(f"{number} of {len(names)}: {name}", align="left")
        if not CHECKS[name].is_built():
            console.print("not built")
            unbuilt.append(name)
            continue
        command = [sys.executable, str(Path(__file__)), "--check", name]
        begin = time.monotonic()
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
        else:
            done.append(name)
            console.print(f"{time.monotonic() - begin:.0f} s")
    lines = list(lines_of(OUT, done))
    show(lines, console)
    for name in unbuilt:
        for row in CHECKS[name].rows:
            console.print(f"not built: {row}")
    write(OUT / "all.json", lines, {"failed": failed, "not_built": unbuilt})
    if failed:
        console.print(f"FAILED: {', '.join(failed)}")
    console.print(f"figures in {OUT}; what they mean: docs/results.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
