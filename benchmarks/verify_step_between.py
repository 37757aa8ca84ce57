"""A verify step of this commit against another commit's, in turns: the ratio of their CPU time.

Two processes, one step each in turn. A step is one forward pass of 8 rows with k drafts and the
draw at each position; rows advance a few tokens per step, so that they enter new blocks as they do
in service. Unlike `verify_step.py` it compares no models.

    git archive COMMIT | tar -x -C DIR
    python benchmarks/verify_step_between.py DIR [--model DIR] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import count
from pathlib import Path

from turns import Comparison, Peer, compare, cpu_ms, serve

ROWS, K, ADVANCE, TURN = 8, 4, 3, 240


def peer(model: str, dtype: str) -> None:
    """Load, then run a step per turn."""
    import structlog
    import torch

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    from loaded import Loaded

    from minedraft.model.sampling import Position, SamplingRow, draw
    from minedraft.types import RowParams

    torch.set_num_threads(1)
    loaded = Loaded(model, dtype, num_rows=ROWS, room=TURN + 2 * K)
    greedy = [
        SamplingRow(RowParams(temperature=0.0), tuple(tokens[: loaded.context]))
        for tokens in loaded.tokens
    ]
    positions = [Position(row) for row in greedy for _ in range(K + 1)]
    steps = (loaded.rows(ROWS, K + 1, at=i * ADVANCE % TURN) for i in count())
    kernel = getattr(loaded.runner, "draw_kernel", None)  # not in older checkouts
    by = () if kernel is None else (kernel,)
    serve(cpu_ms(lambda: draw(loaded.runner.forward(next(steps)), positions, *by)))


def compare_with(other: Path, model: str, dtype: str, rounds: int) -> Comparison:
    """Milliseconds of CPU time per step, this checkout over the other one."""
    options = ("--serve", dtype, "--model", model, str(other))
    with Peer(__file__, *options, root=other) as base, Peer(__file__, *options) as new:
        return compare(base, new, rounds=rounds, warm_up=5)


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
        peer(args.model, args.serve)
        return
    if not args.model:
        from minedraft.hub.pairs import ensure_pair

        args.model = str(ensure_pair("smollm2").target_dir)
    results = {}
    for dtype in args.dtypes.split(","):
        result = compare_with(args.other.resolve(), args.model, dtype, args.rounds)
        print(f"{dtype}, ms per step, this over the other: {result}")
        results[dtype] = result.to_json()
    if args.json:
        args.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
