"""Greedy acceptance of a draft model on prompts spread over a file. Prints one line of figures.

.venv/bin/python benchmarks/acceptance.py [--pair smollm2] [--prompts data/spec_bench.jsonl]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from minedraft.bench.prompts import load_prompts
from minedraft.distill.acceptance import measure_acceptance
from minedraft.hub.pairs import ensure_pair
from minedraft.hub.progress import RichProgress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="smollm2")
    parser.add_argument("--target", type=Path, help="model directory instead of the pair's")
    parser.add_argument("--draft", type=Path, help="model directory instead of the pair's")
    parser.add_argument("--prompts", type=Path, default=Path("data/spec_bench.jsonl"))
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--max-chars", type=int, default=2000)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("-k", type=int, default=4)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    args = parser.parse_args()

    pair = None if args.target and args.draft else ensure_pair(args.pair)
    target_dir = args.target or (pair and pair.target_dir)
    draft_dir = args.draft or (pair and pair.draft_dir)
    dtype = getattr(torch, args.dtype)
    target = AutoModelForCausalLM.from_pretrained(target_dir, dtype=dtype).eval()
    draft = AutoModelForCausalLM.from_pretrained(draft_dir, dtype=dtype).eval()
    tokenizer = AutoTokenizer.from_pretrained(target_dir)
    texts = load_prompts(args.prompts, limit=args.limit, max_chars=args.max_chars)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        for text in texts
    ]
    with RichProgress() as progress:
        report = measure_acceptance(
            target,
            draft,
            prompts,
            progress,
            num_draft_tokens=args.k,
            max_new_tokens=args.max_tokens,
        )
    print(
        f"{len(prompts)} prompts of {args.prompts}, {report.num_tokens} tokens, greedy, "
        f"{args.dtype}, k = {args.k}: per-token match {report.match_rate:.3f}, "
        f"accepted over proposed {report.acceptance_rate:.3f}, "
        f"{report.tokens_per_step:.2f} tokens a target step"
    )


if __name__ == "__main__":
    main()
