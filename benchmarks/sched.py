"""`make bench-sched`: what the scheduler promises, each line beside its target.

Shapes, caches, memory, prefill and the simulator: ratios within one run, medians of at least three.
Each check runs in a process of its own. The figures go to out/bench/sched/*.json, and from there
`benchmarks/tables.py` draws docs/results.md. The machine should be idle.

    python benchmarks/sched.py [--only NAME ...] [--skip NAME ...]
    python benchmarks/sched.py --only              # only sum up what was measured before
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

import curve  # noqa: E402 the path comes first
from lines import show, write  # noqa: E402
from rich.console import Console  # noqa: E402
from sched_checks import CHECKS, shapes  # noqa: E402

from minedraft.bench.machine import describe, in_words  # noqa: E402

if TYPE_CHECKING:
    from sched_checks.check import Report

OUT = ROOT / "out" / "bench" / "sched"
PICTURE = ROOT / "docs" / "throughput.svg"
console = Console(highlight=False)


def found_reports() -> dict[str, Report]:
    """Read the figures of all checks that were made here, now or earlier."""
    paths = {name: OUT / f"{name}.json" for name in CHECKS}
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }


def run_one(name: str) -> None:
    """Measure here, and write the figures."""
    begin = time.monotonic()
    report = CHECKS[name].measure()
    document = {"machine": describe(), "seconds": time.monotonic() - begin, "report": report}
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def sum_up(found: dict[str, Report], missing: list[str]) -> None:
    """Write the lines of all checks into one document, and draw the curve."""
    lines = [line for name, each in found.items() for line in CHECKS[name].lines(each["report"])]
    curves: dict[str, dict[int, dict[str, float]]] = {}
    for name, each in found.items():
        if name.startswith("curve_"):
            report = each["report"]
            curves.setdefault(report["pair"], {}).update(shapes.medians(report))
    seconds = {name: each["seconds"] for name, each in found.items()}
    raw = {"missing": missing, "seconds": seconds, "curves": curves}
    write(OUT / "all.json", lines, raw)
    if curves:
        machine = next(each["machine"] for name, each in found.items() if name.startswith("curve_"))
        PICTURE.write_text(curve.render(curves, subtitle=in_words(machine)), encoding="utf-8")
        console.print(f"curve: {PICTURE}")


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
    done, failed = [], []
    for number, name in enumerate(names, 1):
        console.rule(f"{number} of {len(names)}: {name}", align="left")
        command = [sys.executable, str(Path(__file__)), "--check", name]
        begin = time.monotonic()
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
        else:
            done.append(name)
            console.print(f"{time.monotonic() - begin:.0f} s")
    found = found_reports()
    show([line for name in done for line in CHECKS[name].lines(found[name]["report"])], console)
    missing = [row for name, check in CHECKS.items() if name not in found for row in check.rows]
    for row in missing:
        console.print(f"not measured: {row}")
    sum_up(found, missing)
    if failed:
        console.print(f"FAILED: {', '.join(failed)}")
    console.print(f"figures in {OUT}; what they mean: docs/results.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
