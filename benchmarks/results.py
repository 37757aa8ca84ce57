"""`make results`: what the papers say, beside what theory and the simulator say of the same.

Nothing is measured on a machine here, so it runs anywhere in some minutes: the theorem's curve, the
figures of MineDraft's tables, its ablations, and ForeSpark's comparison of schedulers. Step costs
are a roofline of the cards; the scheduler is the one that serves. The figures go to
out/bench/results, the curves to docs/, and from there `benchmarks/tables.py` draws docs/results.md.

    python benchmarks/results.py [--only NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

import tables as document_tables  # noqa: E402 the path comes first
from chart import Panel, render  # noqa: E402
from lines import show  # noqa: E402
from paper_checks import ablations, tables, theory  # noqa: E402
from rich.console import Console  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

OUT = ROOT / "out" / "bench" / "results"
DOCS = ROOT / "docs"
console = Console(highlight=False)
MEASURES: dict[str, Callable[[], dict[str, Any]]] = {
    "theory": theory.measure,
    "paper_tables": tables.measure,
    "ablations": ablations.measure,
}


def pictures(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Draw the curves whose figures are there, by file."""
    drawn = {}
    if "theory" in found:
        drawn["theory.svg"] = render([of_theory(found["theory"])])
    if "ablations" in found:
        drawn["ablations.svg"] = render(of_ablations(found["ablations"]))
    return drawn


def of_theory(report: dict[str, Any]) -> Panel:
    at, value = report["paper"]
    return Panel(
        "T_SD / T_PSD: turns over rotation",
        "alpha V (logarithmic)",
        "ratio of the times per success",
        report["curves"],
        is_log=True,
        marks={
            "50 % less time: alpha V = 1.256": (1.256, report["computed"]["1.256"]),
            "37 %: MineDraft's bound, 1.59 at 1.68": (at, value),
        },
    )


def of_ablations(report: dict[str, Any]) -> list[Panel]:
    names = {name: name.rpartition(" / ")[2] for name in report["drafters"]}
    return [
        Panel(
            "PSD over SD, equal batch",
            "k",
            "ratio of tokens/s",
            {
                short: [
                    [int(k), at["psd"] / at["sd"]] for k, at in report["drafters"][name].items()
                ]
                for name, short in names.items()
            },
        ),
        Panel(
            "PSD, tokens/s",
            "k",
            "tokens/s, acceptance assumed by size",
            {
                short: [[int(k), at["psd"]] for k, at in report["drafters"][name].items()]
                for name, short in names.items()
            },
        ),
        Panel(
            f"PSD over SD by m, {report['pair']}",
            "m, requests per batch",
            "ratio of tokens/s, best k",
            {
                "equal batch": [[int(m), at["batch"]] for m, at in report["m"].items()],
                "equal concurrency": [[int(m), at["concurrency"]] for m, at in report["m"].items()],
            },
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", nargs="*", choices=MEASURES, default=list(MEASURES))
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    for name in args.only:
        console.rule(name, align="left")
        begin = time.monotonic()
        report = MEASURES[name]()
        (OUT / f"{name}.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        console.print(f"{time.monotonic() - begin:.0f} s")
    paths = {name: OUT / f"{name}.json" for name in MEASURES}
    found = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }
    for name, text in pictures(found).items():
        (DOCS / name).write_text(text, encoding="utf-8")
        console.print(f"curve: docs/{name}")
    document_tables.redraw(["docs/results.md"])
    checked = list(theory.lines(found["theory"])) if "theory" in found else []
    show(checked, console)
    return 0 if all(line.is_met for line in checked) else 1


if __name__ == "__main__":
    sys.exit(main())
