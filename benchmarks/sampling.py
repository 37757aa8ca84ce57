"""Sampling and acceptance of one verify step, beside the verify step itself. Prints a table.

.venv/bin/python benchmarks/sampling.py [--json OUT] [--target PATH | --synthetic]

40 positions (8 rows, k = 4), vocabulary 49,152, one thread, CPU time (median). The peaked logits
are those of the demo target over text it sampled itself at T = 0.8, top-p 0.95, and the verify step
is measured on the same rows. The flat ones are normal noise, the worst case for top-p, which then
keeps most of the vocabulary. `--synthetic` needs no model: Zipf-like logits whose nuclei (p = 0.95)
have 1 to 400 tokens, as the demo target's have, and no verify step to compare.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from minedraft.model.kernels import select
from minedraft.model.sampling import Position, SamplingRow, draw, draw_with_q
from minedraft.services.verifier.acceptance import AcceptItem, accept
from minedraft.types import KERNELS, Acceptance, RowParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from minedraft.model.draw_rows import DrawKernel

ROWS, K, CONTEXT, VOCAB = 8, 4, 200, 49_152
LIMITS = {"peaked": 0.08, "flat": 0.15}
"""Largest shares of the verify step, at T = 0.8, top-p 0.95."""
CASES = {
    "greedy": {"temperature": 0.0},
    "T 0.8, top-p 0.95": {"temperature": 0.8, "top_p": 0.95},
    "T 0.8, top-k 50": {"temperature": 0.8, "top_k": 50},
    "T 0.8, min-p 0.05": {"temperature": 0.8, "min_p": 0.05},
    "T 0.8, top-p 0.95, penalties": {
        "temperature": 0.8,
        "top_p": 0.95,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
    },
    "T 1, no truncation": {"temperature": 1.0},
    "T 0.8, top-p 0.95, 5 logprobs": {"temperature": 0.8, "top_p": 0.95, "logprobs": 5},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--target", help="model directory or hub id instead of the demo target")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--dtype", default="float32", help="of the target's arithmetic")
    parser.add_argument("--kernels", choices=KERNELS, default="auto", help="of target and draw")
    parser.add_argument("--repeat", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)

    if args.synthetic:
        histories = [[0] * CONTEXT for _ in range(ROWS)]
        logits, verify_ms = synthetic_logits(), None
    else:
        histories, logits, verify_ms = from_target(args)
    kernels = select(args.kernels, torch.float32, 1)
    nuclei = nucleus_sizes(logits)
    figures: dict[str, object] = {
        "positions": len(logits),
        "vocab_size": logits.shape[1],
        "nucleus_tokens": nuclei,
        "verify_ms": verify_ms,
        "kernels": kernels.name,
    }
    print(f"{len(logits)} positions, vocabulary {logits.shape[1]}, {logits.dtype}, {kernels.name}")
    print(f"nucleus (T 0.8, p 0.95): median {statistics.median(nuclei)}, most {nuclei[-1]} tokens")
    if verify_ms is not None:
        print(f"verify step, m = {ROWS}, k = {K}, context {CONTEXT}: {verify_ms:.1f} ms")
    milliseconds: dict[str, float] = {}
    for name, params in CASES.items():
        milliseconds[name] = _report(
            name, accepting(logits, histories, params, kernels.draw), verify_ms, args.repeat
        )
    top_p = CASES["T 0.8, top-p 0.95"]
    milliseconds["rejection, T 0.8, top-p 0.95"] = _report(
        "rejection, T 0.8, top-p 0.95",
        accepting(logits, histories, top_p, kernels.draw, Acceptance.REJECTION),
        verify_ms,
        args.repeat,
    )
    positions = [Position(row) for row in rows_of(histories, top_p)]
    first = logits[:: K + 1]
    milliseconds["one draft step of 8 rows, T 0.8, top-p 0.95"] = _report(
        "one draft step of 8 rows",
        lambda: draw(first, positions, kernels.draw),
        verify_ms,
        args.repeat,
    )
    milliseconds["full sort of every row (the usual way)"] = _report(
        "full sort of every row", lambda: logits.float().sort(-1), verify_ms, 3
    )
    figures["cpu_ms"] = milliseconds
    flat = "T 0.8, top-p 0.95, flat logits"
    milliseconds[flat] = _report(
        flat,
        accepting(flat_logits(logits), histories, top_p, kernels.draw),
        verify_ms,
        args.repeat,
    )
    if verify_ms is not None:
        names = {"peaked": "T 0.8, top-p 0.95", "flat": flat}
        shares = {kind: milliseconds[name] / verify_ms for kind, name in names.items()}
        figures["share_of_verify"] = shares
        figures["limits"] = LIMITS
        for kind, share in shares.items():
            print(f"share of the verify step, {kind}: {share:.3f}; want <= {LIMITS[kind]}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def rows_of(histories: list[list[int]], params: dict[str, float]) -> list[SamplingRow]:
    half = CONTEXT // 2
    return [
        SamplingRow(RowParams(seed=i, **params), history[:half], history[half:CONTEXT])  # type: ignore[arg-type]
        for i, history in enumerate(histories)
    ]


def accepting(
    logits: Tensor,
    histories: list[list[int]],
    params: dict[str, float],
    kernel: DrawKernel | None,
    rule: Acceptance = Acceptance.COUPLED,
) -> Callable[[], object]:
    """One call of `accept` with drafts that a drafter of the target's own logits would make."""
    rows = rows_of(histories, params)
    drafts: list[list[int]] = [[] for _ in rows]
    q: list[list[tuple[tuple[int, ...], tuple[float, ...]]]] = [[] for _ in rows]
    for i in range(K):
        positions = [Position(row, draft) for row, draft in zip(rows, drafts, strict=True)]
        tokens, q_rows = draw_with_q(logits[i :: K + 1], positions, 64)
        for n, (token, q_row) in enumerate(zip(tokens, q_rows, strict=True)):
            drafts[n].append(token)
            q[n].append(q_row)
    items = [
        AcceptItem(row, draft, q_row if rule is Acceptance.REJECTION else None)
        for row, draft, q_row in zip(rows, drafts, q, strict=True)
    ]
    return lambda: accept(logits, items, rule, kernel)


def synthetic_logits() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    rank = torch.arange(1, VOCAB + 1).float().log()
    exponents = [4.0, 3.0, 2.2, 1.6, 1.25]
    rows = []
    for i in range(ROWS * (K + 1)):
        scores = -exponents[i % len(exponents)] * rank + torch.randn(VOCAB, generator=generator)
        rows.append(scores[torch.randperm(VOCAB, generator=generator)])
    return torch.stack(rows).bfloat16()


def flat_logits(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(like.shape, generator=generator).to(like.dtype)


def from_target(args: argparse.Namespace) -> tuple[list[list[int]], Tensor, float]:
    """Text the target samples itself, the logits of a verify step at its end, and the step's ms."""
    from minedraft.hub.pairs import ensure_pair
    from minedraft.model.batch import RowInput
    from minedraft.model.loader import load_runner

    path = args.target or ensure_pair("smollm2").target_dir
    per_row = -(-(CONTEXT + K + 1) // 16)
    runner = load_runner(path, dtype=args.dtype, num_blocks=ROWS * per_row, kernels=args.kernels)
    blocks = [list(range(i * per_row, (i + 1) * per_row)) for i in range(ROWS)]
    # Prompts of eight tokens from the middle of the vocabulary; then the target goes on.
    rows = [
        SamplingRow(
            RowParams(temperature=0.8, top_p=0.95, seed=i), [100 * i + t for t in range(500, 508)]
        )
        for i in range(ROWS)
    ]
    inputs = [RowInput(r.prompt_token_ids, 0, b, 1) for r, b in zip(rows, blocks, strict=True)]
    while rows[0].num_tokens < CONTEXT + K:
        tokens = draw(runner.forward(inputs), [Position(row) for row in rows], runner.draw_kernel)
        inputs = [
            RowInput([token], row.num_tokens, b, 1)
            for row, token, b in zip(rows, tokens, blocks, strict=True)
        ]
        for row, token in zip(rows, tokens, strict=True):
            row.set_committed(row.num_tokens + 1, [token])
    histories = [[*r.prompt_token_ids, *r.output_token_ids] for r in rows]
    step = [
        RowInput(history[CONTEXT - 1 : CONTEXT + K], CONTEXT - 1, b, K + 1)
        for history, b in zip(histories, blocks, strict=True)
    ]
    verify_ms = median_ms(lambda: runner.forward(step), args.repeat)
    return histories, runner.forward(step).clone(), verify_ms


def nucleus_sizes(logits: Tensor) -> list[int]:
    mass = torch.softmax(logits.float() / 0.8, -1).sort(-1, descending=True).values.cumsum(-1)
    return sorted(((mass < 0.95).sum(-1) + 1).tolist())


def median_ms(call: Callable[[], object], repeat: int) -> float:
    for _ in range(2):
        call()
    times = []
    for _ in range(repeat):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return statistics.median(times) * 1e3


def _report(name: str, call: Callable[[], object], verify_ms: float | None, repeat: int) -> float:
    took = median_ms(call, repeat)
    share = f"{took / verify_ms:8.1%} of a verify step" if verify_ms is not None else ""
    print(f"  {name:32s} {took:8.2f} ms {share}")
    return took


if __name__ == "__main__":
    main()
