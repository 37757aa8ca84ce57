"""Rows of keys, values and queries over a block pool, and what attention makes of them in fp64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from minedraft.model.attention import AttentionOptions
from minedraft.model.batch import RowInput
from minedraft.model.kv_pool import KVPool, LayerGeometry
from minedraft.model.step_meta import plan_step

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shape:
    """A layer and its pool."""

    key_dim: int = 64
    value_dim: int | None = None
    group: int = 3
    num_kv_heads: int = 2
    block_size: int = 16
    window: int | None = None
    softcap: float | None = None

    @property
    def options(self):
        return AttentionOptions(self.key_dim**-0.5, self.window, self.softcap)

    @property
    def geometry(self):
        value_dim = self.key_dim if self.value_dim is None else self.value_dim
        return LayerGeometry(self.num_kv_heads, self.key_dim, value_dim)


class Scene:
    """Rows that each have `start` positions behind them and feed `count` tokens.

    Blocks are out of order; whatever nobody wrote is `dirt`. Two scenes of one seed have the same
    rows, however many there are.
    """

    def __init__(self, shape, dtype, rows, *, layout, dirt=math.nan, seed=0):
        self.shape, self.dtype, self.rows = shape, dtype, rows
        size, geometry = shape.block_size, shape.geometry
        needed = [-(-(start + count) // size) for start, count in rows]
        num_blocks = sum(needed) + 3
        self.pool = KVPool(
            [geometry, geometry], num_blocks=num_blocks, block_size=size, dtype=dtype, device=CPU,
            layout=layout,
        )  # fmt: skip
        for stack in self.pool._stacks:
            stack.fill_(dirt)
        mixed = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed)).tolist()
        self.tables = [mixed[sum(needed[:i]) : sum(needed[: i + 1])] for i in range(len(rows))]
        self.keys, self.values, self.queries = [], [], []
        for index, (start, count) in enumerate(rows):
            generator = torch.Generator().manual_seed(1000 * seed + index)
            end, heads = start + count, shape.num_kv_heads
            made = [
                torch.randn(end, width, dim, generator=generator).to(dtype)
                for width, dim in (
                    (heads, geometry.key_dim),
                    (heads, geometry.value_dim),
                    (heads * shape.group, geometry.key_dim),
                )
            ]
            for kept, tensor in zip((self.keys, self.values, self.queries), made, strict=True):
                kept.append(tensor)

    def step(self, pieces):
        """The step of [(row, first position, count)], and its packed tensors."""
        rows = [RowInput([0] * n, at, self.tables[row], 0) for row, at, n in pieces]
        packed = [
            torch.cat([source[row][at : at + n] for row, at, n in pieces])
            for source in (self.queries, self.keys, self.values)
        ]
        return plan_step(rows, block_size=self.shape.block_size, device=CPU), *packed

    def feed(self, kernels, pieces):
        """Write these tokens' keys and values, then attend: {(row, position): output}."""
        step, query, key, value = self.step(pieces)
        kernels.write(key, value, self.pool, 1, step)
        output = kernels.attend(query, self.pool, 1, step, self.shape.options)
        places = [(row, at + i) for row, at, n in pieces for i in range(n)]
        return dict(zip(places, output, strict=True))

    def prefill(self, kernels):
        """Write what lies before each row's tokens."""
        pieces = [(row, 0, start) for row, (start, _) in enumerate(self.rows) if start]
        if pieces:
            step, _, key, value = self.step(pieces)
            kernels.write(key, value, self.pool, 1, step)

    def last(self):
        """The pieces of the tokens that the rows feed."""
        return [(row, start, count) for row, (start, count) in enumerate(self.rows)]

    def wanted(self, row, position):
        """[Hq * Dv] in fp64."""
        shape = self.shape
        first = 0 if shape.window is None else max(0, position - shape.window + 1)
        keys, values = (
            x[row][first : position + 1].double().repeat_interleave(shape.group, 1)
            for x in (self.keys, self.values)
        )
        query = self.queries[row][position].double()
        scores = torch.einsum("hd,lhd->hl", query, keys) * shape.options.scaling
        if shape.softcap is not None:
            scores = shape.softcap * torch.tanh(scores / shape.softcap)
        return torch.einsum("hl,lhd->hd", scores.softmax(-1), values).flatten()
