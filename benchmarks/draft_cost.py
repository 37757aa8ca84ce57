"""Drawing over computing in a draft step: 8 rows, k = 4, T 0.8, top-p 0.95, one thread.

The drafter's own engine and stopwatch, with its model. Contexts are the text of prompts, on which a
model is sure of some tokens, and random tokens, on which it is not and top-p keeps most of the
vocabulary. Wall time of the draws over that of the forward passes, the median of many steps.

    python benchmarks/draft_cost.py [--dtype float32] [--kernels c] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from minedraft.bench.machine import describe, in_words
from minedraft.bench.prompts import load_prompts
from minedraft.hub.pairs import ensure_pair
from minedraft.model.loader import load_runner
from minedraft.plans import DraftPlan, DraftRow, OpenRow
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from minedraft.services.drafter.draft_engine import DraftEngine
from minedraft.types import RowId, RowParams

if TYPE_CHECKING:
    from minedraft.model.runner import ModelRunner

ROWS, K, CONTEXT, LIMIT = 8, 4, 200, 0.25
DATA = Path(__file__).parents[1] / "data" / "spec_bench.jsonl"
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "T 0.8": {"temperature": 0.8},
    "T 0.8, top-p 0.95": {"temperature": 0.8, "top_p": 0.95},
}


def contexts(model: Path, *, is_text: bool) -> list[tuple[int, ...]]:
    """Find a context per row: text, on which the model is sure, or random tokens, on which not."""
    if not is_text:
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, 49_000, (ROWS, CONTEXT), generator=generator)
        return [tuple(row) for row in ids.tolist()]
    text = " ".join(load_prompts(DATA))
    all_ids = Tokenizer.from_directory(model).encode(text)
    return [tuple(all_ids[i * CONTEXT : (i + 1) * CONTEXT]) for i in range(ROWS)]


def measure(
    runner: ModelRunner, params: dict[str, Any], prompts: list[tuple[int, ...]], rounds: int
) -> dict[str, float]:
    engine = DraftEngine(runner, "model", max_catch_up_tokens=ROWS * CONTEXT)
    opens = tuple(
        OpenRow(RowId(i + 1), prompt, (), RowParams(seed=i, **params))
        for i, prompt in enumerate(prompts)
    )
    rows = tuple(DraftRow(RowId(i + 1), CONTEXT, (), K) for i in range(ROWS))
    forward, sample = [], []
    for step in range(rounds + 3):
        plan = DraftPlan(step + 1, 0, 1, rows, opens if step == 0 else (), ())
        result = engine.step(plan, plan_ns=time.perf_counter_ns(), send=lambda _packet: None)
        if step >= 3 and result is not None:  # the first ones feed the contexts
            forward.append(result.timing.forward_ns / 1e6)
            sample.append(result.timing.sample_ns / 1e6)
    ratios = [s / f for s, f in zip(sample, forward, strict=True)]
    return {
        "forward_ms": statistics.median(forward),
        "sample_ms": statistics.median(sample),
        "ratio": statistics.median(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    model = ensure_pair("smollm2").draft_dir
    named = {"kernels": args.kernels} if args.kernels else {}
    runner = load_runner(model, dtype=args.dtype, num_blocks=256, **named)
    machine = describe()
    print(in_words(machine))
    report: dict[str, Any] = {"machine": machine, "dtype": args.dtype, "limit": LIMIT, "cases": {}}
    for kind in ("text", "random tokens"):
        prompts = contexts(model, is_text=kind == "text")
        for name, params in CASES.items():
            figures = measure(runner, params, prompts, args.rounds)
            report["cases"][f"{name}, {kind}"] = figures
            print(
                f"{name}, {kind}: draws {figures['sample_ms']:.2f} ms over forwards "
                f"{figures['forward_ms']:.2f} ms = {figures['ratio']:.3f}"
            )
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
