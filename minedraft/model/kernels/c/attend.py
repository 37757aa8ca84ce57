"""Attention in place, and writing keys and values, by the C kernels.

Refuses shapes, dtypes and strides that the kernels would read beyond.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from minedraft.errors import StateError
from minedraft.model.kernels.c.paged import Paged

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.attention import AttentionOptions
    from minedraft.model.kernels.c.library import Library
    from minedraft.model.kernels.c.pool import Pool
    from minedraft.model.kernels.interface import Heads, Rope, Step
    from minedraft.model.kv_pool import KVPool


class Attention:
    """Keys, values and queries: the bits of a query depend on its own row only.

    Args:
        library: The kernels.
        pool: Their threads; None: the calling thread alone.
        dtype: Of queries, keys and values, float32 or bfloat16.
    """

    def __init__(self, library: Library, pool: Pool | None, dtype: torch.dtype) -> None:
        pointer, size, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
        self._rope_write = library.function(
            "md_rope_write",
            *(pointer, pointer, pointer, pointer, size, size, pointer, pointer, size),
        )
        self._write = library.function(
            "md_write",
            *(pointer, pointer, pointer),
            *(pointer, size, size, size),
            *(pointer, size, size, size),
        )
        self._attend = library.function(
            "md_attend",
            *(pointer, pointer, pointer, pointer, size, size, size, pointer, real, real, size),
        )
        self._threads = None if pool is None else pool.handle
        self._pool = pool  # the threads live as long as what uses them
        self._dtype = dtype
        self._paged = Paged(dtype)

    def rope_write(
        self, qkv: Tensor, rope: Rope, pool: KVPool, layer: int, step: Step, *, heads: Heads
    ) -> None:
        """Rotate queries and keys in place, copy keys and values into the pool (see `Kernels`)."""
        geometry = pool.layers[layer]
        row, feature = qkv.stride()
        width = (heads.num_query_heads + 2 * heads.num_kv_heads) * heads.head_dim
        if (
            qkv.shape != (step.slots.shape[0], width)
            or qkv.dtype is not self._dtype
            or feature != 1
            or geometry.num_kv_heads != heads.num_kv_heads
            or geometry.key_dim != heads.head_dim
        ):
            raise StateError(f"qkv {list(qkv.shape)} {qkv.dtype}: does not fit {geometry}, {heads}")
        half = rope.cos.shape[1]
        for turn in (rope.cos, rope.sin):
            if turn.shape != (qkv.shape[0], half) or turn.dtype is not torch.float32:
                raise StateError(f"rotations {list(turn.shape)} {turn.dtype}: want float32")
            if not turn.is_contiguous():
                raise StateError(f"rotations {list(turn.shape)}: not contiguous")
        self._rope_write(
            self._threads, self._paged.layer(pool, layer), self._paged.step(step), qkv.data_ptr(),
            row, heads.num_query_heads, rope.cos.data_ptr(), rope.sin.data_ptr(), half,
        )  # fmt: skip

    def write(self, key: Tensor, value: Tensor, pool: KVPool, layer: int, step: Step) -> None:
        """Copy keys and values into the pool (see `Kernels`)."""
        geometry = pool.layers[layer]
        tokens, num_kv_heads = step.slots.shape[0], geometry.num_kv_heads
        for given, dim in ((key, geometry.key_dim), (value, geometry.value_dim)):
            if given.shape != (tokens, num_kv_heads, dim) or given.dtype is not self._dtype:
                raise StateError(
                    f"keys or values {list(given.shape)} {given.dtype}: "
                    f"want {[tokens, num_kv_heads, dim]} {self._dtype}"
                )
        self._write(
            self._threads, self._paged.layer(pool, layer), self._paged.step(step),
            key.data_ptr(), *key.stride(), value.data_ptr(), *value.stride(),
        )  # fmt: skip

    def attend(
        self,
        query: Tensor,
        pool: KVPool,
        layer: int,
        step: Step,
        options: AttentionOptions,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """Attend in place (see `Kernels`).

        Raises:
            StateError: a shape or dtype does not fit; names it.
        """
        T, num_heads, dim = query.shape
        geometry = pool.layers[layer]
        if (
            dim != geometry.key_dim
            or num_heads % geometry.num_kv_heads
            or step.slots.shape[0] != T
            or query.dtype is not self._dtype
        ):
            raise StateError(f"query {list(query.shape)} {query.dtype}: does not fit {geometry}")
        token, head, feature = query.stride()
        if feature != 1:
            query = query.contiguous()
            token, head, feature = query.stride()
        shape = (T, num_heads * geometry.value_dim)
        if out is None:
            out = query.new_empty(shape)
        elif out.shape != shape or out.dtype is not self._dtype or not out.is_contiguous():
            raise StateError(f"output {list(out.shape)} {out.dtype}: want {list(shape)}")
        self._attend(
            self._threads, self._paged.layer(pool, layer), self._paged.step(step),
            query.data_ptr(), token, head, num_heads, out.data_ptr(),
            options.scaling, options.softcap or 0.0, options.sliding_window or 0,
        )  # fmt: skip
        return out
