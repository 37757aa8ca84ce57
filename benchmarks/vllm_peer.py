"""vLLM's CPU build on the same requests, run by the Python it is installed in. Prints JSON.

Called by `ar_throughput.py --vllm PYTHON`; reads from standard input what to do. It is installed
in a virtual environment of its own, because its pins are not ours (benchmarks/README.md).
"""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    task = json.load(sys.stdin)
    from vllm import LLM, SamplingParams

    model = LLM(
        task["target"],
        dtype="bfloat16",
        max_model_len=1024,
        max_num_seqs=len(task["prompts"]),
        enforce_eager=True,
    )
    num_tokens = task["num_tokens"]
    params = SamplingParams(
        temperature=0.0, max_tokens=num_tokens, min_tokens=num_tokens, ignore_eos=True
    )
    prompts = [{"prompt_token_ids": ids} for ids in task["prompts"]]
    figures = []
    for _ in range(task["repeat"] + 1):
        before = time.process_time()
        outputs = model.generate(prompts, params, use_tqdm=False)
        spent = time.process_time() - before
        figures.append(sum(len(o.outputs[0].token_ids) for o in outputs) / spent)
    print(json.dumps(figures[1:]))  # the first one warms up


if __name__ == "__main__":
    main()
