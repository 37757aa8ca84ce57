"""This checkout against the commit before live shapes: planning cost, and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lines import Line
from turns import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sched_checks.check import Report

BEFORE = "7c23028"
"""The commit before costs, shapes and prefix caches."""


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Unpack another commit of this repository."""
    with tempfile.TemporaryDirectory(prefix="minedraft-before-") as directory:
        archive = subprocess.run(
            ["git", "archive", commit],  # noqa: S607 a checkout has git
            cwd=HERE, check=True, capture_output=True,
        ).stdout  # fmt: skip
        subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)  # noqa: S607
        yield Path(directory)


def plan_cost() -> Report:
    """CPU time of planning and committing, in turns with the other commit."""
    found = {}
    with checkout(BEFORE) as other, tempfile.TemporaryDirectory() as out:
        for rows in ("32", "128"):
            path = Path(out) / "plan.json"
            subprocess.run(
                [
                    sys.executable, str(HERE / "benchmarks" / "plan_cost.py"), str(other),
                    "--rows", rows, "--rounds", "20", "--json", str(path),
                ],
                check=True,
            )  # fmt: skip
            found[rows] = json.loads(path.read_text(encoding="utf-8"))
    return found


def plan_cost_lines(report: Report) -> Iterator[Line]:
    for rows, found in report.items():
        text = f"plan and commit at 2 x {rows} over {BEFORE}"
        detail = f"{found['new']:.1f} over {found['base']:.1f} us per row"
        yield Line(text, found["ratio"], 0.7, detail=detail)


def policy_cost() -> Report:
    """CPU time of planning and committing under `wcs`, in turns with `fixed`."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [
                sys.executable, str(HERE / "benchmarks" / "plan_cost.py"), str(HERE),
                "--policy", "wcs", "--rounds", "20", "--json", file.name,
            ],
            check=True,
        )  # fmt: skip
        found: Report = json.loads(Path(file.name).read_text(encoding="utf-8"))
    return found


def policy_cost_lines(report: Report) -> Iterator[Line]:
    detail = f"{report['new']:.1f} over {report['base']:.1f} us per row"
    yield Line("planning at 2 x 32, wcs over fixed", report["ratio"], 1.5, detail=detail)


def memory() -> Report:
    """Resident memory of the coordinator after 2,000 requests, here and there."""
    with checkout(BEFORE) as other:
        return {"new": _memory(HERE), "base": _memory(other)}


def _memory(root: Path) -> float:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [sys.executable, str(root / "benchmarks" / "memory.py"), "--json", file.name],
            check=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        return float(json.loads(Path(file.name).read_text(encoding="utf-8"))["rss_mib_after"])


def memory_lines(report: Report) -> Iterator[Line]:
    detail = f"{report['new']:.0f} over {report['base']:.0f} MiB"
    text = f"coordinator memory after 2,000 requests over {BEFORE}"
    yield Line(text, report["new"] / report["base"], 1.2, detail=detail)
