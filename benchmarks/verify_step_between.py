"""A verify step of this commit against another commit's, in turns: the ratio of their CPU time.

Two processes, one step each in turn, so that a busy machine slows both alike. A step is one forward
pass of 8 rows with k drafts and the draw at each position; rows advance a few tokens per step, so
that they enter new blocks as they do in service. Unlike `verify_step.py` it compares no models.

    git archive COMMIT | tar -x -C DIR
    python benchmarks/verify_step_between.py DIR [--model DIR] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

BLOCK = 16
ROWS, K, CONTEXT, ADVANCE = 8, 4, 200, 3
HERE = Path(__file__).resolve().parent.parent


def serve(model: str, dtype: str) -> None:
    """Load, say so, then run a step for each line of stdin and say its CPU time in ms."""
    import structlog
    import torch

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    from minedraft.model.batch import RowInput
    from minedraft.model.loader import load_runner
    from minedraft.model.sampling import Position, SamplingRow, draw
    from minedraft.types import RowParams

    torch.set_num_threads(1)
    per_row = 40
    runner = load_runner(model, dtype=dtype, num_blocks=per_row * ROWS, block_size=BLOCK)
    rng = random.Random(0)
    order = list(range(per_row * ROWS))
    rng.shuffle(order)
    tables = [order[i * per_row : (i + 1) * per_row] for i in range(ROWS)]
    tokens = [[rng.randrange(runner.info.vocab_size) for _ in range(640)] for _ in range(ROWS)]
    runner.forward([RowInput(tokens[i][:CONTEXT], 0, tables[i], 0) for i in range(ROWS)])
    positions = [
        Position(SamplingRow(RowParams(temperature=0.0), tuple(tokens[i][:CONTEXT])))
        for i in range(ROWS)
        for _ in range(K + 1)
    ]
    print(sys.modules["minedraft"].__file__, flush=True)
    at = 0
    for _ in sys.stdin:
        starts = [CONTEXT + i + at for i in range(ROWS)]
        rows = [
            RowInput(tokens[i][start : start + K + 1], start, tables[i], K + 1)
            for i, start in enumerate(starts)
        ]
        begin = time.process_time()
        draw(runner.forward(rows), positions)
        print((time.process_time() - begin) * 1e3, flush=True)
        at = (at + ADVANCE) % 240


def start(root: Path, model: str, dtype: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, "--serve", dtype, "--model", model, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
    )


def ask(process: subprocess.Popen[str]) -> float:
    pipe, answers = process.stdin, process.stdout
    if pipe is None or answers is None:
        raise SystemExit("no pipes")
    pipe.write("\n")
    pipe.flush()
    return float(answers.readline())


def compare(other: Path, model: str, dtype: str, rounds: int) -> dict[str, object]:
    both = [start(other, model, dtype), start(HERE, model, dtype)]
    try:
        where = [Path((p.stdout or sys.stdin).readline().strip()).parent.parent for p in both]
        if where != [other, HERE]:
            raise SystemExit(f"imported {where}")
        for process in both * 5:
            ask(process)  # warms up
        pairs = []
        for index in range(rounds):
            turn = both if index % 2 else both[::-1]
            times = {id(process): ask(process) for process in turn}
            pairs.append((times[id(both[0])], times[id(both[1])]))
    finally:
        for process in both:
            process.kill()
            process.wait()
    ratios = [new / old for old, new in pairs]
    return {
        "dtype": dtype,
        "other_ms": statistics.median(old for old, _ in pairs),
        "this_ms": statistics.median(new for _, new in pairs),
        "ratio_of_medians": statistics.median(n for _, n in pairs)
        / statistics.median(o for o, _ in pairs),
        "median_ratio": statistics.median(ratios),
        "quartiles": statistics.quantiles(ratios, n=4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--model", default="")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=160)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.model, args.serve)
        return
    if not args.model:
        from minedraft.hub.pairs import ensure_pair

        args.model = str(ensure_pair("smollm2").target_dir)
    results = [
        compare(args.other.resolve(), args.model, d, args.rounds) for d in args.dtypes.split(",")
    ]
    for r in results:
        print(r)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
