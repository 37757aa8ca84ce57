"""An int4 target over the same one stored in bf16: bytes of its weights, and steps in turns.

The int4 checkpoint is made here from the demo target: compressed-tensors, groups of 32, scales in
float16, embedding and head left as they are. Bytes are those that the kernels keep, once for the
layers that are quantised and once with the head. CPU time of 1x1 and 16x1, fp32, one thread.

    python benchmarks/int4_step.py [--rounds 25] [--json OUT]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from loaded import Loaded
from turns import HERE, compare, cpu_ms

from minedraft.bench.machine import describe, in_words
from minedraft.hub.pairs import ensure_pair

FORM = "ct_int4"
LIMITS = {"bytes": 0.40, "1x1": 1.0, "16x1": 1.3}
SHAPES = {"1x1": (1, 1), "16x1": (16, 1)}


def make_int4(target: Path, into: Path) -> Path:
    """Quantise a copy of a model, by the writer that the tests have."""
    sys.path.insert(0, str(HERE))
    from tests.quantised_models import quantise

    copy = into / "int4"
    shutil.copytree(target, copy)
    quantise(copy, FORM)
    return copy


def kept_bytes(vocab_size: int, before: set[int]) -> tuple[int, int, set[int]]:
    """Count what the kernels keep of weights loaded since: layers, head, and all so far."""
    layers = head = 0
    seen = set()
    for found in gc.get_objects():
        if str(type(found).__module__).startswith("minedraft.model.kernels") and hasattr(
            found, "num_bytes"
        ):
            seen.add(id(found))
            if id(found) not in before:
                is_head = found.out_features >= vocab_size
                head += found.num_bytes if is_head else 0
                layers += 0 if is_head else found.num_bytes
    return layers, head, seen


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kernels", default="c")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    target = ensure_pair("smollm2").target_dir
    report: dict[str, Any] = {"machine": describe(), "limits": LIMITS}
    print(in_words(report["machine"]))
    with tempfile.TemporaryDirectory() as scratch:
        models = {"bf16": target, "int4": make_int4(target, Path(scratch))}
        loaded, kept = {}, {}
        seen: set[int] = set()
        for name, model in models.items():
            loaded[name] = Loaded(model, kernels=args.kernels)
            layers, head, seen = kept_bytes(loaded[name].runner.info.vocab_size, seen)
            kept[name] = {"layers_mib": layers / 2**20, "head_mib": head / 2**20}
    sums = {name: sum(sizes.values()) for name, sizes in kept.items()}
    report |= {
        "kept": kept,
        "bytes": kept["int4"]["layers_mib"] / kept["bf16"]["layers_mib"],
        "bytes_with_head": sums["int4"] / sums["bf16"],
        "steps": {},
    }
    print(
        f"bytes of quantised layers, int4 over bf16-stored: {report['bytes']:.3f}; with the head "
        f"{report['bytes_with_head']:.3f}; want <= {LIMITS['bytes']}"
    )
    for name, shape in SHAPES.items():
        result = compare(
            cpu_ms(lambda shape=shape: loaded["bf16"].step(*shape)),
            cpu_ms(lambda shape=shape: loaded["int4"].step(*shape)),
            rounds=args.rounds,
        )
        report["steps"][name] = result.to_json()
        print(f"step {name}, int4 over bf16-stored: {result}; want <= {LIMITS[name]}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
