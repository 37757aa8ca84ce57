"""Logits of a row in different batches, chunks and thread counts: equal bits, and their hash.

In fp32 and bf16: the same positions as verify 8x5, decode 8x1 and 1x1, prefill whole and in chunks
of 48, with other batch mates, with one and two threads, and with every object of the kernels that
this CPU runs. The hash is that of fixed logits, so that two machines can be compared. Objects agree
but for the tile unit (avx512-amx), whose sums of bf16 products have an order of their own.

    python benchmarks/same_bits.py [--dtypes float32,bfloat16] [--kernels c] [--json OUT]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minedraft.bench.machine import describe, in_words

if TYPE_CHECKING:
    from loaded import Loaded
    from torch import Tensor

ROWS, QUERY, CONTEXT, CHUNK = 8, 5, 200, 48
ISA_VARIABLE = "MINEDRAFT_KERNELS_ISA"


def ways(loaded: Loaded, mates: Loaded) -> dict[str, Tensor]:
    """Compute the logits of row 0 at the positions after its context, each way; [5, V] each.

    Args:
        loaded: Rows at the context.
        mates: Other rows at the same context; its first one is given the tokens of row 0.
    """
    import torch

    from minedraft.model.batch import RowInput

    runner, table = loaded.runner, loaded.tables[0]
    tokens = loaded.tokens[0][: CONTEXT + QUERY]
    found = {"verify 8x5": loaded.step(ROWS, QUERY)[:QUERY].clone()}
    for name, num_rows in (("decode 8x1", ROWS), ("decode 1x1", 1)):
        steps = [runner.forward(loaded.rows(num_rows, 1, at=i))[:1].clone() for i in range(QUERY)]
        found[name] = torch.cat(steps)
    found["verify 1x5"] = loaded.step(1, QUERY).clone()
    found["prefill whole"] = runner.forward([RowInput(tokens, 0, table, QUERY)]).clone()
    for start in range(0, len(tokens), CHUNK):
        chunk = tokens[start : start + CHUNK]
        is_last = start + CHUNK >= len(tokens)
        logits = runner.forward([RowInput(chunk, start, table, QUERY if is_last else 0)])
        found[f"prefill in chunks of {CHUNK}"] = logits.clone()
    mates.tokens[0] = loaded.tokens[0]
    mates.runner.forward([RowInput(tokens[:CONTEXT], 0, mates.tables[0], 0)])
    others = [
        RowInput(mates.tokens[1][:17], 0, mates.tables[1], 1),  # a prompt begins
        RowInput(mates.tokens[2][CONTEXT : CONTEXT + 1], CONTEXT, mates.tables[2], 1),
    ]
    first = mates.rows(1, QUERY)
    found["other batch mates"] = mates.runner.forward([*others, *first])[-QUERY:].clone()
    return found


def sha256_of(logits: Tensor) -> str:
    import torch

    return hashlib.sha256(logits.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def measure(model: str, dtype: str, kernels: str, num_threads: int) -> dict[str, str]:
    """Compute all ways with so many threads; their hashes."""
    import torch
    from loaded import Loaded

    torch.set_num_threads(num_threads)
    loaded = Loaded(model, dtype, kernels=kernels, num_rows=ROWS, context=CONTEXT)
    mates = Loaded(model, dtype, kernels=kernels, num_rows=3, context=CONTEXT, seed=1)
    return {name: sha256_of(logits) for name, logits in ways(loaded, mates).items()}


def in_a_process(*options: str, isa: str = "") -> dict[str, str]:
    environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error"}
    if isa:
        environment[ISA_VARIABLE] = isa
    done = subprocess.run(
        [sys.executable, __file__, "--serve", *options],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def isas() -> list[str]:
    """Instruction sets that this CPU runs and the kernels have an object for, the best first."""
    from minedraft.errors import KernelsError
    from minedraft.model.kernels.c.cpu import flags_here, runnable
    from minedraft.model.kernels.c.library import load

    found = []
    for isa in runnable(flags_here()):
        try:
            load(isa)
        except KernelsError:
            continue
        found.append(isa)
    return found


def collect(model: str, dtype: str, kernels: str) -> dict[str, str]:
    """The hash of every way, each thread count and object in a process of its own."""
    found: dict[str, str] = {}
    for num_threads in (1, 2):
        options = ("--model", model, "--dtypes", dtype, "--kernels", kernels)
        hashes = in_a_process(*options, "--threads", str(num_threads))
        found |= {f"{name}, threads {num_threads}": value for name, value in hashes.items()}
    if kernels != "torch":
        for isa in isas()[1:]:  # the first is what the threads were counted with
            hashes = in_a_process(*options, "--threads", "1", isa=isa)
            found |= {f"{name}, {isa}": value for name, value in hashes.items()}
    return found


def judge(dtype: str, found: dict[str, str], default_isa: str) -> dict[str, Any]:
    """Compare the ways of each family: all objects, in bf16 all but those with a tile unit."""
    families: dict[str, dict[str, str]] = {}
    default = found["verify 8x5, threads 1"]
    for name, value in found.items():
        of_way = name.rpartition(", ")[2]
        isa = default_isa if of_way.startswith("threads") else of_way
        family = "tiles" if dtype == "bfloat16" and isa.endswith("amx") else "all"
        families.setdefault(family, {})[name] = value
    differing = [
        name
        for family in families.values()
        for name, value in family.items()
        if value != next(iter(family.values()))
    ]
    return {
        "dtype": dtype,
        "sha256": default,
        "num_compared": len(found),
        "differing": differing,
        "sha256_by_way": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", default="")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--kernels", default="c")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        import structlog

        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
        print(json.dumps(measure(args.model, args.dtypes, args.kernels, args.threads)))
        return
    if not args.model:
        from minedraft.hub.pairs import ensure_pair

        args.model = str(ensure_pair("smollm2").target_dir)
    report = {"machine": describe(), "results": []}
    print(in_words(report["machine"]))
    for dtype in args.dtypes.split(","):
        found = collect(args.model, dtype, args.kernels)
        result = judge(dtype, found, (isas() or [""])[0])
        report["results"].append(result)
        print(
            f"{dtype}: {len(result['differing'])} of {result['num_compared']} ways differ; fixed "
            f"logits have sha256 {result['sha256'][:16]}"
        )
        for name in result["differing"]:
            print(f"  differs: {name}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
