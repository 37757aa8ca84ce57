"""Verify step of the paged path against the model's own batched forward, one thread, in turns.

In one process: a turn of the model's own forward with its dense cache (SDPA, equal lengths, rolled
back by crop), then a turn of ours, in CPU time. The model's own has weights of the dtype of the
arithmetic, as transformers loads it. Also a loop of 16 rows x 1 token, for tokens per CPU second.

    python benchmarks/verify_step.py [--model DIR] [--dtypes float32,bfloat16] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
from loaded import Loaded
from transformers import AutoModelForCausalLM, DynamicCache
from turns import compare, cpu_ms

from minedraft.bench.machine import describe, in_words
from minedraft.hub.pairs import ensure_pair
from minedraft.model.loader import DTYPES

LIMITS = {"float32": 0.60, "bfloat16": 0.55}
DECODE_ROWS, DECODE_STEPS = 16, 16


def measure(model_dir: Path, dtype: str, args: argparse.Namespace) -> dict[str, Any]:
    m, q, context = args.rows, args.k + 1, args.context
    loaded = Loaded(model_dir, dtype, kernels=args.kernels, context=context)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=DTYPES[dtype]).eval()
    ids = torch.tensor(loaded.tokens)
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(ids[:m, :context], cache=cache, use_cache=True)

    def own() -> torch.Tensor:
        with torch.inference_mode():
            logits: torch.Tensor = model(
                ids[:m, context : context + q], cache=cache, use_cache=True
            ).logits
            cache.crop(-q)
            return logits

    wanted, got = own().flatten(0, 1), loaded.step(m, q)
    agreement = float((wanted.argmax(-1) == got.argmax(-1)).float().mean())
    result = compare(cpu_ms(own), cpu_ms(lambda: loaded.step(m, q)), rounds=args.rounds)
    decode_ms = sum(
        cpu_ms(lambda at=at: loaded.runner.forward(loaded.rows(DECODE_ROWS, 1, at=at)))()
        for at in range(DECODE_STEPS)
    )
    return {
        "dtype": dtype,
        **result.to_json(),
        "limit": LIMITS[dtype],
        "argmax_agreement": agreement,
        "decode_16x1_tokens_per_cpu_s": DECODE_ROWS * DECODE_STEPS / decode_ms * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", type=Path, help="default: the demo target")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--context", type=int, default=200)
    args = parser.parse_args()
    args.model = args.model or ensure_pair("smollm2").target_dir
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    report = {
        "machine": describe(),
        "results": [measure(args.model, dtype, args) for dtype in args.dtypes.split(",")],
    }
    print(in_words(report["machine"]))
    for r in report["results"]:
        low, high = r["quartiles"]
        print(
            f"{r['dtype']}: own {r['base']:.1f} ms, paged {r['new']:.1f} ms CPU, "
            f"ratio {r['ratio']:.3f} [{low:.3f}..{high:.3f}], limit {r['limit']:.2f}; "
            f"argmax agreement {r['argmax_agreement']:.2f}; "
            f"decode 16x1 {r['decode_16x1_tokens_per_cpu_s']:.0f} tokens/CPU s"
        )
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
