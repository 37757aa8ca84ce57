"""Attention of one layer: the C kernels over plain torch, CPU seconds, interleaved, one thread.

Writes of the step's keys and values are in it; masks and gather indices of the torch maker are not,
because a step builds them once for all layers.

    OMP_NUM_THREADS=1 python benchmarks/attention_cost.py
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch

from minedraft.model.attention import AttentionOptions
from minedraft.model.batch import RowInput
from minedraft.model.kernels.c.attend import Attention
from minedraft.model.kernels.c.library import load
from minedraft.model.kernels.interface import KeyLayout
from minedraft.model.kernels.torch_maker import TorchKernels
from minedraft.model.kv_pool import KVPool, LayerGeometry
from minedraft.model.step_meta import plan_step

BLOCK = 16
LAYERS = 30
"""Calls in turn go to other layers, so that keys and values are as cold as in a step."""
STEPS = [
    (rows, queries, context)
    for context in (200, 1000)
    for rows, queries in ((16, 1), (8, 5), (1, 1))
]
STEPS += [(1, length, 0) for length in (512, 2048)]


class Side:
    """One maker, its pool, and one step."""

    def __init__(
        self,
        kernels: TorchKernels | Attention,
        layout: KeyLayout,
        dtype: torch.dtype,
        step: tuple[int, int, int],
        heads: tuple[int, int, int],
    ) -> None:
        rows, queries, context = step
        query_heads, kv_heads, dim = heads
        blocks = -(-(context + queries) // BLOCK)
        self.pool = KVPool(
            [LayerGeometry(kv_heads, dim, dim)] * LAYERS, num_blocks=rows * blocks,
            block_size=BLOCK, dtype=dtype, device=torch.device("cpu"), layout=layout,
        )  # fmt: skip
        for stack in self.pool._stacks:  # noqa: SLF001 fill it, whatever the layout
            stack.normal_()
        mixed = torch.randperm(rows * blocks).tolist()
        tables = [mixed[i * blocks : (i + 1) * blocks] for i in range(rows)]
        self.step = plan_step(
            [RowInput([0] * queries, context, table, 0) for table in tables],
            block_size=BLOCK, device=torch.device("cpu"),
        )  # fmt: skip
        self.kernels = kernels
        shapes = [(rows * queries, n, dim) for n in (query_heads, kv_heads, kv_heads)]
        self.tensors = [torch.randn(shape).to(dtype) for shape in shapes]
        self.options = AttentionOptions(dim**-0.5)

    def run(self, layers: int) -> float:
        """CPU seconds per layer."""
        query, key, value = self.tensors
        begin = time.process_time()
        for layer in range(layers):
            self.kernels.write(key, value, self.pool, layer, self.step)
            self.kernels.attend(query, self.pool, layer, self.step, self.options)
        return (time.process_time() - begin) / layers


@torch.inference_mode()
def measure(
    dtype: torch.dtype, step: tuple[int, int, int], heads: tuple[int, int, int], rounds: int
) -> tuple[float, float, float]:
    sides = [
        Side(TorchKernels(dtype), KeyLayout.ROWS, dtype, step, heads),
        Side(Attention(load(), None, dtype), KeyLayout.COLUMNS, dtype, step, heads),
    ]
    layers = LAYERS if step[1] <= 5 else 3
    for side in sides:
        side.run(2)
    times = [[side.run(layers) for side in sides] for _ in range(rounds)]
    theirs, ours = (min(column) for column in zip(*times, strict=True))
    return theirs, ours, median(b / a for a, b in times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--heads", type=int, nargs=3, default=(9, 3, 64), metavar="N")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{load().isa}, heads {tuple(arguments.heads)}, us per layer")
    print("dtype      rows x q, context     torch         c    ratio")
    for name in arguments.dtypes:
        for step in STEPS:
            theirs, ours, ratio = measure(
                getattr(torch, name), step, arguments.heads, arguments.rounds
            )
            shape = f"{step[0]}x{step[1]}, {step[2]}"
            print(f"{name:10} {shape:18} {theirs * 1e6:10.0f} {ours * 1e6:9.0f} {ratio:8.2f}")


if __name__ == "__main__":
    main()
