"""Hands the pool's layers and a step's tensors to the kernels: the structures of src/paged.h.

Refuses a pool of another layout or dtype, and tensors that are not contiguous int32.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Final

import torch

from minedraft.errors import StateError
from minedraft.model.kernels.interface import KeyLayout

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.kernels.interface import Step
    from minedraft.model.kv_pool import KVPool

CODES: Final = {torch.float32: 0, torch.bfloat16: 1}
"""dtype codes of src/api.h."""


class _Layer(ctypes.Structure):
    _fields_ = (
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        *(
            (name, ctypes.c_int64)
            for name in (
                "kv_heads",
                "key_dim",
                "value_dim",
                "value_row",
                "block_size",
                "lanes",
                "dtype",
            )
        ),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("cu", "starts", "table", "slots")),
        *((name, ctypes.c_int64) for name in ("rows", "width", "tokens")),
    )


class Paged:
    """Addresses of what kernels read of a pool and of a step, kept until another one comes.

    Args:
        dtype: That the kernels compute in.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._pool: weakref.ref[KVPool] | None = None
        self._layers: list[_Layer] = []
        self._addresses: list[int] = []
        self._step: Step | None = None
        self._described = _Step()
        self._step_address = ctypes.addressof(self._described)

    def layer(self, pool: KVPool, index: int) -> int:
        """Return the address of `md_layer`."""
        if self._pool is None or self._pool() is not pool:
            self._describe_pool(pool)
        return self._addresses[index]

    def step(self, step: Step) -> int:
        """Return the address of `md_step`."""
        if self._step is not step:
            self._describe_step(step)
        return self._step_address

    def _describe_pool(self, pool: KVPool) -> None:
        if pool.layout is not KeyLayout.COLUMNS or pool.dtype is not self._dtype:
            raise StateError(
                f"pool of {pool.dtype} with keys in {pool.layout.value}: "
                f"want {self._dtype} in {KeyLayout.COLUMNS.value}"
            )
        self._layers = [
            _Layer(
                pool.keys(index).data_ptr(),
                pool.values(index).data_ptr(),
                geometry.num_kv_heads,
                geometry.key_dim,
                geometry.value_dim,
                pool.values(index).shape[-1],
                pool.block_size,
                pool.keys(index).shape[-1],
                CODES[self._dtype],
            )
            for index, geometry in enumerate(pool.layers)
        ]
        self._addresses = [ctypes.addressof(layer) for layer in self._layers]
        self._pool = weakref.ref(pool)

    def _describe_step(self, step: Step) -> None:
        rows, width = step.table.shape
        tensors = (step.cu_seqlens, step.starts, step.table, step.slots)
        if not all(_is_plain(tensor) for tensor in tensors) or (
            step.cu_seqlens.shape[0] != rows + 1 or step.starts.shape[0] != rows
        ):
            raise StateError("step: cu_seqlens, starts, table, slots must be contiguous int32")
        addresses = (tensor.data_ptr() for tensor in tensors)
        self._described = _Step(*addresses, rows, width, step.slots.shape[0])
        self._step_address = ctypes.addressof(self._described)
        self._step = step


def _is_plain(tensor: Tensor) -> bool:
    return tensor.dtype is torch.int32 and tensor.is_contiguous()
