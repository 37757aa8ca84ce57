"""The KV block pool: per layer a key and a value tensor, in blocks, laid out for who reads them.

Refuses to know who owns a block: tables come with every call. Rejected tokens need no work here,
their slots are overwritten. In rows, [num_blocks, Hkv, block_size, D], heads come before positions
so that a gather leaves each head's keys contiguous, which is what batched matrix products want
(FlashInfer calls this page layout HND); there a masked slot is still multiplied by 0, and 0 * NaN
is NaN, so a block that changes hands is cleared first. In columns, a block's keys lie transposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from minedraft.model.kernels.interface import KeyLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class LayerGeometry:
    """Shape of one layer's keys and values."""

    num_kv_heads: int
    key_dim: int
    value_dim: int


class KVPool:
    """Keys and values of every layer in blocks of `block_size` positions.

    Args:
        layers: Geometry of each attention layer, in the order of their `layer_idx`.
        num_blocks: Blocks; all layers share one numbering.
        block_size: Positions a block holds.
        dtype: Of keys and values.
        device: Where they live.
        layout: Of keys.
    """

    def __init__(
        self,
        layers: Sequence[LayerGeometry],
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        layout: KeyLayout = KeyLayout.ROWS,
    ) -> None:
        self.layers = tuple(layers)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.dtype = dtype
        self.layout = layout
        self._device = device

        self._stacks: list[Tensor] = []
        """[layers, num_blocks, Hkv, positions, D], views: layers of one shape together, so that a
        block is cleared in all of them at once."""
        in_rows = layout is KeyLayout.ROWS
        keys = [(x.num_kv_heads, block_size, x.key_dim) for x in layers]
        values = [(x.num_kv_heads, block_size, x.value_dim) for x in layers]
        if not in_rows:
            lanes = _whole_vectors(block_size)
            keys = [(x.num_kv_heads, x.key_dim, lanes) for x in layers]
            values = [(heads, size, _whole_vectors(dim)) for heads, size, dim in values]
        self._keys = self._make(keys, are_columns=not in_rows)
        self._values = self._make(values, are_columns=False)
        # One row per head and position, for writes; one page per block and head, for gathers.
        self._key_rows = [keys.flatten(0, 2) for keys in self._keys if in_rows]
        self._value_rows = [values.flatten(0, 2) for values in self._values if in_rows]
        self._key_pages = [keys.flatten(0, 1) for keys in self._keys if in_rows]
        self._value_pages = [values.flatten(0, 1) for values in self._values if in_rows]
        self._scratch: dict[tuple[str, int], Tensor] = {}

    @property
    def num_layers(self) -> int:
        """Layers."""
        return len(self.layers)

    @property
    def needs_clean_slots(self) -> bool:
        """Whether slots that a query may not see must be finite: they are multiplied by 0."""
        return self.layout is KeyLayout.ROWS

    def num_kv_heads(self, layer: int) -> int:
        """Hkv of a layer."""
        return self.layers[layer].num_kv_heads

    def keys(self, layer: int) -> Tensor:
        """Return the keys of a layer.

        In rows [num_blocks, Hkv, block_size, Dk]; in columns [num_blocks, Hkv, Dk, block_size
        rounded up to 16].
        """
        return self._keys[layer]

    def values(self, layer: int) -> Tensor:
        """Return the values of a layer, [num_blocks, Hkv, block_size, Dv].

        In columns Dv is rounded up to 16.
        """
        return self._values[layer]

    @property
    def num_bytes(self) -> int:
        """Bytes of keys and values together."""
        return sum(stack.nbytes for stack in self._stacks)

    def clear(self, block: int, offset: int = 0) -> None:
        """Zero a block's positions from `offset` on, in every layer."""
        for stack in self._stacks:
            stack[:, block, :, offset:].zero_()

    def write(self, layer: int, rows: Tensor, key: Tensor, value: Tensor) -> None:
        """Store the keys and values of freshly fed tokens; in rows only.

        Args:
            layer: `layer_idx`.
            rows: [T * Hkv] int64, (block * Hkv + head) * block_size + offset of each token's heads.
            key: [T, Hkv, Dk] in the pool's dtype.
            value: [T, Hkv, Dv] likewise.
        """
        self._key_rows[layer].index_copy_(0, rows, key.flatten(0, 1))
        self._value_rows[layer].index_copy_(0, rows, value.flatten(0, 1))

    def gather(
        self, layer: int, pages: Tensor, num_rows: int, num_kv_heads: int
    ) -> tuple[Tensor, Tensor]:
        """Copy blocks side by side; in rows only.

        The result lives in a buffer that the next call with the same geometry overwrites: every
        layer of a step reuses the same memory, which stays in cache and is never page-faulted.

        Args:
            layer: `layer_idx`.
            pages: [num_rows * Hkv * n] int64, block * Hkv + head: row after row, in each the
                heads, in each the blocks.
            num_rows: Rows.
            num_kv_heads: Hkv of the layer.

        Returns:
            Keys [num_rows, Hkv, n * block_size, Dk] and values [num_rows, Hkv, n * block_size, Dv],
            contiguous.
        """
        keys = self._select("k", self._key_pages[layer], pages)
        values = self._select("v", self._value_pages[layer], pages)
        return (
            keys.view(num_rows, num_kv_heads, -1, keys.shape[-1]),
            values.view(num_rows, num_kv_heads, -1, values.shape[-1]),
        )

    def _make(self, shapes: Sequence[tuple[int, int, int]], *, are_columns: bool) -> list[Tensor]:
        """[num_blocks, *shape] of zeros for each shape."""
        made: dict[int, Tensor] = {}
        for shape in dict.fromkeys(shapes):
            alike = [layer for layer, other in enumerate(shapes) if other == shape]
            stack = torch.zeros(
                len(alike), self.num_blocks, *shape, dtype=self.dtype, device=self._device
            )
            self._stacks.append(stack.transpose(-1, -2) if are_columns else stack)
            made.update(zip(alike, stack, strict=True))
        return [made[layer] for layer in range(len(shapes))]

    def _select(self, side: str, source: Tensor, pages: Tensor) -> Tensor:
        _, block_size, dim = source.shape
        buffer = self._scratch.get((side, dim))
        count = pages.shape[0]
        if buffer is None or buffer.shape[0] < count:
            # Grown in powers of two: steps of nearby sizes share one buffer.
            buffer = source.new_empty(1 << (count - 1).bit_length(), block_size, dim)
            self._scratch[side, dim] = buffer
        return torch.index_select(source, 0, pages, out=buffer[:count])


def _whole_vectors(count: int) -> int:
    """Round up to the 16 numbers that a kernel of the C maker reads at once."""
    return -(-count // 16) * 16
