"""A decode step of 16 rows with two threads over one: wall time, in turns, a process each.

Needs two cores that are idle; wall times of a busy machine say nothing.

    python benchmarks/two_threads.py [--dtype float32] [--kernels c] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from turns import Peer, compare, serve, wall_ms

ROWS, LIMIT = 16, 0.65


def peer(args: argparse.Namespace) -> None:
    import structlog
    import torch

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    torch.set_num_threads(args.serve)
    from loaded import Loaded

    loaded = Loaded(args.model, args.dtype, kernels=args.kernels)
    serve(wall_ms(lambda: loaded.step(ROWS, 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", default="")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        peer(args)
        return
    if not args.model:
        from minedraft.hub.pairs import ensure_pair

        args.model = str(ensure_pair("smollm2").target_dir)
    from minedraft.bench.machine import describe

    options = ("--model", args.model, "--dtype", args.dtype, "--kernels", args.kernels)
    with (
        Peer(__file__, "--serve", "1", *options, environment={"OMP_NUM_THREADS": "1"}) as one,
        Peer(__file__, "--serve", "2", *options, environment={"OMP_NUM_THREADS": "2"}) as two,
    ):
        result = compare(one, two, rounds=args.rounds)
    print(f"{ROWS}x1, {args.dtype}, ms of wall time, two threads over one: {result}; want {LIMIT}")
    if args.json:
        figures = {"machine": describe(), "limit": LIMIT, **result.to_json()}
        args.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
