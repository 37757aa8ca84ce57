"""What the isolation of rows adds to a verify step: with it and without, in one process, in turns.

Between two processes a step differs by some percent from start to start; within one it does not.
A step is as in `verify_step_between.py`. Without: no block is cleared, and nobody looks whether
numbers are finite.

    python benchmarks/isolation_cost.py [--model DIR] [--dtypes float32,bfloat16] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from unittest.mock import patch

import torch
from loaded import Loaded
from turns import Comparison, compare, cpu_ms
from verify_step_between import ADVANCE, ROWS, TURN, K

from minedraft.hub.pairs import ensure_pair
from minedraft.model.kv_pool import KVPool
from minedraft.model.sampling import Position, SamplingRow, draw
from minedraft.model.soundness import Witness
from minedraft.types import RowParams


def without() -> ExitStack:
    """Take isolation out of a step."""
    stack = ExitStack()
    stack.enter_context(patch.object(KVPool, "clear", lambda *_: None))
    stack.enter_context(patch.object(Witness, "look", lambda *_: None))
    stack.enter_context(patch.object(Witness, "is_sound", lambda *_: True))
    return stack


def measure(model: str, dtype: str, rounds: int) -> Comparison:
    """CPU time of steps with isolation over steps without."""
    loaded = Loaded(model, dtype, num_rows=ROWS, room=TURN + 2 * K)
    greedy = SamplingRow(RowParams(temperature=0.0), tuple(loaded.tokens[0][: loaded.context]))
    positions = [Position(greedy)] * (ROWS * (K + 1))
    both_at = {is_on: count() for is_on in (True, False)}

    def turn(*, is_on: bool) -> float:
        rows = loaded.rows(ROWS, K + 1, at=next(both_at[is_on]) * ADVANCE % TURN)
        with ExitStack() if is_on else without():
            kernel = loaded.runner.draw_kernel
            return cpu_ms(lambda: draw(loaded.runner.forward(rows), positions, kernel))()

    return compare(lambda: turn(is_on=False), lambda: turn(is_on=True), rounds=rounds, warm_up=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", default="")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=240)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = args.model or str(ensure_pair("smollm2").target_dir)
    found = {}
    for dtype in args.dtypes.split(","):
        result = measure(model, dtype, args.rounds)
        print(f"{dtype}, ms per step, with isolation over without: {result}")
        found[dtype] = result.to_json()
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
