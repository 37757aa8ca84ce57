"""Products with weights out of memory: the C kernels over torch, dense and packed by oneDNN.

CPU microseconds per product, one thread, contenders in turn, the least of the rounds; `ratio` is
ours over the better of torch's. MINEDRAFT_KERNELS_ISA chooses our object, ONEDNN_MAX_CPU_ISA
torch's code.

    OMP_NUM_THREADS=1 python benchmarks/linear_cost.py
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from minedraft.model.kernels.c.library import load
from minedraft.model.kernels.c.linear import Linear
from minedraft.model.kernels.torch_maker import TorchKernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

ROWS = (1, 2, 4, 8, 16, 40, 64, 128, 512)
SHAPES = ((960, 576), (3072, 576), (576, 1536), (49152, 576))
"""[N, K] of SmolLM2-135M: q with k and v, gate with up, down, head."""
COLD_BYTES = 100e6
"""Weights in turn take that much, so that each comes from behind the second cache."""


def contenders(
    weights: list[Tensor], dtype: torch.dtype, group: int
) -> dict[str, Callable[[Tensor], object]]:
    """Calls that multiply once with every weight."""
    ours, theirs = Linear(load(), None, dtype), TorchKernels(dtype)
    stored = [ours.store(weight) for weight in weights]
    dense = [weight.to(dtype) for weight in weights]
    packed = [theirs.store(weight) for weight in dense]
    calls: dict[str, Callable[[Tensor], object]] = {
        "dense": lambda x: [F.linear(x, weight) for weight in dense],
        "packed": lambda x: [theirs.linear(x, weight) for weight in packed],
        "ours": lambda x: [ours.linear(x, weight) for weight in stored],
    }
    N, K = weights[0].shape
    if group and K % group == 0:
        codes = torch.randint(0, 256, (N, K // 2), dtype=torch.uint8)
        scales = torch.rand(N, K // group) / 100
        grouped = [ours.store_groups(codes, scales, -8 * scales, 4) for _ in weights]
        calls["int4"] = lambda x: [ours.linear(x, weight) for weight in grouped]
    return calls


@torch.inference_mode()
def measure(shape: tuple[int, int], options: argparse.Namespace) -> None:
    dtype, stored = getattr(torch, options.dtype), getattr(torch, options.stored)
    N, K = shape
    count = max(1, min(30, int(COLD_BYTES / (N * K * stored.itemsize))))
    calls = contenders([torch.randn(N, K).to(stored) for _ in range(count)], dtype, options.group)
    for rows in options.rows:
        x = torch.randn(rows, K).to(dtype)
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(options.rounds + 1):
            for name, call in calls.items():
                begin = time.process_time()
                call(x)
                best[name] = min(best[name], (time.process_time() - begin) / count)
        ratio = best["ours"] / min(best["dense"], best["packed"])
        figures = "  ".join(f"{name} {seconds * 1e6:9.0f}" for name, seconds in best.items())
        rate = 2 * rows * N * K / best["ours"] / 1e9
        print(f"{N:6} x {K:<5} {rows:4} rows  {figures}  ratio {ratio:.2f}  {rate:4.0f} GF/s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--shape", type=int, nargs=2, action="append", metavar=("N", "K"))
    parser.add_argument("--dtype", default="float32", help="of activations")
    parser.add_argument("--stored", default="bfloat16", help="of weights")
    parser.add_argument("--group", type=int, default=0, help="measure int4 in such groups too")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{load().isa}, activations {options.dtype}, weights {options.stored}, us per product")
    for shape in options.shape or SHAPES:
        measure(tuple(shape), options)


if __name__ == "__main__":
    main()
