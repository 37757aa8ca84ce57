"""Where the time of a step goes, by kernel, beside what this core can read and multiply.

Every operation of the maker is timed from outside, one thread, in CPU time; what is left is Python,
the embedding and the bookkeeping of the step. The roofs are those of torch here: reading a large
tensor, and multiplying two large ones in fp32.

    python benchmarks/step_profile.py [--dtype float32] [--kernels c] [--json OUT]
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from loaded import Loaded

from minedraft.bench.machine import describe, in_words
from minedraft.hub.pairs import ensure_pair

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = ((16, 1), (8, 5), (1, 1))
OPERATIONS = {
    "linear": "linears",
    "norm": "norms",
    "add_norm": "norms",
    "norm_heads": "norms",
    "rope_write": "rotary, KV write",
    "write": "rotary, KV write",
    "attend": "attention",
    "act_mul": "gated activation",
    "draw": "draw",
}
"""Operations of a maker, and the name of each in the table."""


class Clock:
    """Adds up the CPU time of the outermost operation that runs."""

    def __init__(self, vocab_size: int) -> None:
        self.seconds: dict[str, float] = {}
        self._depth = 0
        self._vocab_size = vocab_size

    def around(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap an operation."""

        @functools.wraps(operation)
        def timed(*args: object, **options: object) -> object:
            self._depth += 1
            begin = time.thread_time()
            try:
                return operation(*args, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    where = self._name(name, args)
                    spent = time.thread_time() - begin
                    self.seconds[where] = self.seconds.get(where, 0.0) + spent

        return timed

    def _name(self, name: str, args: tuple[object, ...]) -> str:
        stored = args[2] if name == "linear" and len(args) > 2 else None
        if getattr(stored, "out_features", 0) >= self._vocab_size:
            return "head"
        return OPERATIONS[name]


def profile(loaded: Loaded, shape: tuple[int, int], repeat: int) -> dict[str, float]:
    """Split a step; shares of its CPU time, and the whole in ms."""
    maker = type(loaded.runner._kernels)  # noqa: SLF001 nobody else needs it
    for _ in range(3):
        loaded.step(*shape)
    steps: list[dict[str, float]] = []
    for _ in range(repeat):
        clock = Clock(loaded.runner.info.vocab_size)
        with ExitStack() as stack:
            for name in OPERATIONS:
                if hasattr(maker, name):
                    timed = clock.around(name, getattr(maker, name))
                    stack.enter_context(patch.object(maker, name, timed))
            begin = time.thread_time()
            loaded.step(*shape)
            whole = time.thread_time() - begin
        rest = whole - sum(clock.seconds.values())
        steps.append({**clock.seconds, "Python and the rest": rest, "whole": whole})
    names = dict.fromkeys(name for step in steps for name in step)
    middle = {name: statistics.median(step.get(name, 0.0) for step in steps) for name in names}
    whole = middle.pop("whole")
    shares = {name: seconds / whole for name, seconds in middle.items()}
    return {"ms": whole * 1e3, **dict(sorted(shares.items(), key=lambda item: -item[1]))}


def roofs() -> dict[str, float]:
    """Measure what a core reads and multiplies: the best of some tries."""
    large = torch.ones(1 << 27)  # 512 MiB: no cache holds it
    square = torch.rand(1024, 1024)
    read, multiply = [], []
    for _ in range(5):
        begin = time.thread_time()
        large.sum()
        read.append(time.thread_time() - begin)
        begin = time.thread_time()
        torch.mm(square, square)
        multiply.append(time.thread_time() - begin)
    return {
        "read_gb_per_s": large.numel() * 4 / min(read) / 1e9,
        "fp32_gflop_per_s": 2 * 1024**3 / min(multiply) / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--kernels", default="c")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    report: dict[str, Any] = {"machine": describe(), "dtype": args.dtype, "kernels": args.kernels}
    print(in_words(report["machine"]))
    report["roofs"] = roofs()
    print(", ".join(f"{name} {value:.1f}" for name, value in report["roofs"].items()))
    loaded = Loaded(ensure_pair("smollm2").target_dir, args.dtype, kernels=args.kernels)
    report["steps"] = {}
    for shape in SHAPES:
        found = profile(loaded, shape, args.repeat)
        report["steps"][f"{shape[0]}x{shape[1]}"] = found
        shares = ", ".join(f"{name} {share:.0%}" for name, share in found.items() if name != "ms")
        print(f"target {shape[0]}x{shape[1]}: {found['ms']:.1f} ms: {shares}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
