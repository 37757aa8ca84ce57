"""The simulator beside the services: a bench of each pair, replayed in virtual time."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lines import Line

from minedraft.sim.bench_file import read_bench
from minedraft.sim.replay import replay
from minedraft.sim.setup import Setup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sched_checks.check import Report

DATA = Path(__file__).parents[2] / "data" / "spec_bench.jsonl"
SIZES = {"smollm2": (16, 48), "coder": (8, 32)}
"""By pair: prompts, and output tokens of each."""
NAMES = ("ar", "sd", "psd")


def measure(pair: str) -> Report:
    """Run a bench and replay it."""
    num_prompts, num_tokens = SIZES[pair]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [
                sys.executable, "-m", "minedraft.cli.main", "bench", "--pair", pair,
                "--prompts", str(DATA), "--modes", "ar,sd,psd", "--batch", "4", "--k", "4",
                "--num-prompts", str(num_prompts), "--max-tokens", str(num_tokens),
                "--max-prompt-chars", "400", "--json", file.name,
            ],
            check=True,
        )  # fmt: skip
        found = replay(read_bench(Path(file.name)), Setup())
        document = json.loads(Path(file.name).read_text(encoding="utf-8"))
    return {
        "pair": pair,
        "bench": document,
        "modes": {name: each.to_json() for name, each in found.items()},
    }


def lines(report: Report) -> Iterator[Line]:
    for name in NAMES:
        for what in ("step", "tokens"):
            over = report["modes"][name][f"{what}_over_measured"]
            text = f"{report['pair']}, {name}: simulated {what} over measured, distance from 1"
            yield Line(text, abs(over - 1), 0.10, detail=f"{over:.3f}")
