"""What the isolation of rows adds to a verify step: with it and without, in one process, in turns.

Between two processes a step differs by some percent from start to start (which linears are packed
is decided by timing); within one it does not. A step is as in `verify_step_between.py`. Without:
no block is cleared, and nobody looks whether numbers are finite.

    python benchmarks/isolation_cost.py [--model DIR] [--dtypes float32,bfloat16] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

from minedraft.hub.pairs import ensure_pair  # noqa: E402 the path comes first
from minedraft.model.batch import RowInput  # noqa: E402
from minedraft.model.kv_pool import KVPool  # noqa: E402
from minedraft.model.loader import load_runner  # noqa: E402
from minedraft.model.sampling import Position, SamplingRow, draw  # noqa: E402
from minedraft.model.soundness import Witness  # noqa: E402
from minedraft.types import RowParams  # noqa: E402

BLOCK, PER_ROW = 16, 40
ROWS, K, CONTEXT, ADVANCE, TURN = 8, 4, 200, 3, 240


def without() -> ExitStack:
    """Take isolation out of a step."""
    stack = ExitStack()
    stack.enter_context(patch.object(KVPool, "clear", lambda *_: None))
    stack.enter_context(patch.object(Witness, "look", lambda *_: None))
    stack.enter_context(patch.object(Witness, "is_sound", lambda *_: True))
    return stack


def measure(model: str, dtype: str, rounds: int) -> dict[str, object]:
    """CPU time of steps with isolation over steps without."""
    runner = load_runner(model, dtype=dtype, num_blocks=PER_ROW * ROWS, block_size=BLOCK)
    rng = random.Random(0)
    tables = [list(range(i * PER_ROW, (i + 1) * PER_ROW)) for i in range(ROWS)]
    tokens = [[rng.randrange(runner.info.vocab_size) for _ in range(640)] for _ in range(ROWS)]
    runner.forward([RowInput(tokens[i][:CONTEXT], 0, tables[i], 0) for i in range(ROWS)])
    greedy = SamplingRow(RowParams(temperature=0.0), tuple(tokens[0][:CONTEXT]))
    positions = [Position(greedy)] * (ROWS * (K + 1))

    def step(at: int) -> float:
        starts = [CONTEXT + i + at for i in range(ROWS)]
        rows = [
            RowInput(tokens[i][start : start + K + 1], start, tables[i], K + 1)
            for i, start in enumerate(starts)
        ]
        begin = time.process_time()
        draw(runner.forward(rows), positions)
        return (time.process_time() - begin) * 1e3

    for at in range(0, 15, ADVANCE):
        step(at)
    pairs = []
    for index in range(rounds):
        at = index * ADVANCE % TURN
        times = {}
        for is_on in (True, False) if index % 2 else (False, True):
            with ExitStack() if is_on else without():
                times[is_on] = step(at)
        pairs.append((times[True], times[False]))
    ratios = [on / off for on, off in pairs]
    return {
        "dtype": dtype,
        "with_ms": statistics.median(on for on, _ in pairs),
        "without_ms": statistics.median(off for _, off in pairs),
        "median_ratio": statistics.median(ratios),
        "quartiles": statistics.quantiles(ratios, n=4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", default="")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=240)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = args.model or str(ensure_pair("smollm2").target_dir)
    found = [measure(model, dtype, args.rounds) for dtype in args.dtypes.split(",")]
    for line in found:
        print(line)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
