"""Verify step of the paged, packed path against the model's own batched forward, one thread.

Interleaved in one process: each round runs the model's own forward with its dense cache (SDPA,
equal lengths, rolled back by crop) and ours, so that a busy machine slows both. Ratios are of
process CPU time, per round, then the median; the JSON has wall times beside them. Also a loop of
16 rows x 1 token.

    python benchmarks/verify_step.py [--model DIR] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from minedraft.hub.pairs import ensure_pair
from minedraft.model.batch import RowInput
from minedraft.model.loader import DTYPES, load_runner

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS = {"float32": 0.90, "bfloat16": 0.65}
BLOCK = 16


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


def measure(model_dir: Path, dtype: str, args: argparse.Namespace) -> dict[str, Any]:
    m, q, context = args.rows, args.k + 1, args.context
    per_row = -(-(context + max(q, args.decode_steps)) // BLOCK)
    runner = load_runner(model_dir, dtype=dtype, num_blocks=per_row * 16, block_size=BLOCK)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=DTYPES[dtype]).eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, runner.info.vocab_size, (16, context + q), generator=generator)
    tokens = ids.tolist()
    order = list(range(per_row * 16))
    random.Random(0).shuffle(order)  # a pool in use has no neighbouring blocks
    tables = [order[i * per_row : (i + 1) * per_row] for i in range(16)]
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(ids[:m, :context], cache=cache, use_cache=True)
    runner.forward([RowInput(tokens[i][:context], 0, tables[i], 0) for i in range(16)])
    rows = [RowInput(tokens[i][context:], context, tables[i], q) for i in range(m)]

    def own() -> torch.Tensor:
        with torch.inference_mode():
            logits = model(ids[:m, context:], cache=cache, use_cache=True).logits
            cache.crop(-q)
            return logits

    def ours() -> torch.Tensor:
        return runner.forward(rows)

    wanted, got = own().flatten(0, 1), ours()
    agreement = float((wanted.argmax(-1) == got.argmax(-1)).float().mean())
    rounds: dict[str, list[tuple[float, float]]] = {"own": [], "ours": []}
    for index in range(args.rounds + 2):
        for name, call in (("own", own), ("ours", ours)):
            sample = timed(call)
            if index >= 2:  # the first two rounds warm up
                rounds[name].append(sample)
    ratios = [b[1] / a[1] for a, b in zip(rounds["own"], rounds["ours"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)

    decode = []
    for step in range(args.decode_steps):
        batch = [RowInput([tokens[i][0]], context + step, tables[i], 1) for i in range(16)]
        decode.append(timed(lambda batch=batch: runner.forward(batch)))
    decode_cpu_s = sum(cpu for _, cpu in decode) / 1e3
    return {
        "dtype": dtype,
        "own_cpu_ms": statistics.median(c for _, c in rounds["own"]),
        "ours_cpu_ms": statistics.median(c for _, c in rounds["ours"]),
        "own_wall_ms": statistics.median(w for w, _ in rounds["own"]),
        "ours_wall_ms": statistics.median(w for w, _ in rounds["ours"]),
        "ratio": middle,
        "ratio_quartiles": [low, high],
        "limit": LIMITS[dtype],
        "met": middle <= LIMITS[dtype],
        "argmax_agreement": agreement,
        "decode_16x1_tokens_per_cpu_s": 16 * args.decode_steps / decode_cpu_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", type=Path, help="default: the demo target")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--context", type=int, default=200)
    parser.add_argument("--decode-steps", type=int, default=16)
    parser.add_argument("--core", type=int, default=None, help="pin to this core")
    args = parser.parse_args()
    args.model = args.model or ensure_pair("smollm2").target_dir
    torch.set_num_threads(1)
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})
    report = {
        "machine": cpu_name(),
        "torch": torch.__version__,
        "load_before": os.getloadavg()[0],
        "results": [measure(args.model, dtype, args) for dtype in args.dtypes.split(",")],
    }
    report["load_after"] = os.getloadavg()[0]
    print(f"{report['machine']}, torch {report['torch']}, one thread, load {report['load_before']}")
    for r in report["results"]:
        low, high = r["ratio_quartiles"]
        print(
            f"{r['dtype']}: own {r['own_cpu_ms']:.1f} ms, paged {r['ours_cpu_ms']:.1f} ms CPU, "
            f"ratio {r['ratio']:.3f} [{low:.3f}..{high:.3f}], limit {r['limit']:.2f}: "
            f"{'met' if r['met'] else 'MISSED'}; argmax agreement {r['argmax_agreement']:.2f}; "
            f"decode 16x1 {r['decode_16x1_tokens_per_cpu_s']:.0f} tokens/CPU s"
        )
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
