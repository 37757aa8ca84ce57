"""Working memory that a thread reuses from call to call. Its content outlives no call.

A fresh buffer of some megabytes is fresh pages, and touching them costs more than the arithmetic
on them: it was half of the time of sampling on the CPU.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_local = threading.local()


def scratch(use: str, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an uninitialised matrix; this thread's next call for the same use gets its memory.

    Args:
        use: Name of the use; two buffers alive at once need two names.
        shape: Rows and columns.
        dtype: Of the elements.
        device: Where; CUDA's allocator keeps its memory itself, so there it is a plain `empty`.
    """
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    buffers: dict[tuple[str, torch.dtype], Tensor] = _local.__dict__.setdefault("buffers", {})
    size = shape[0] * shape[1]
    buffer = buffers.get((use, dtype))
    if buffer is None or buffer.numel() < size:
        with torch.inference_mode(mode=False):  # else it could not be written outside of it
            buffer = torch.empty(size, dtype=dtype)
        buffers[use, dtype] = buffer
    return buffer[:size].view(shape)
