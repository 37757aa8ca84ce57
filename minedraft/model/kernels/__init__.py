"""The arithmetic of a forward pass behind one interface, by several makers. Knows no model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.errors import ConfigError, KernelsError
from minedraft.types import KERNELS

if TYPE_CHECKING:
    import torch

    from minedraft.model.kernels.interface import Kernels


def select(
    name: str, dtype: torch.dtype, num_threads: int, *, device: torch.device | None = None
) -> Kernels:
    """Make the kernels of a model. Call it on the device thread: their threads stay on its cores.

    Args:
        name: One of `KERNELS`. `auto`: C where it can run, else torch.
        dtype: Of activations, keys and values: float32 or bfloat16.
        num_threads: Threads of a step, the device thread among them.
        device: Where the model runs; None: the CPU.

    Raises:
        ConfigError: no such maker.
        KernelsError: C was asked for by name, and cannot run here.
    """
    from minedraft.model.kernels.torch_maker import TorchKernels

    if name not in KERNELS:
        raise ConfigError(f"kernels={name!r}: want one of {', '.join(KERNELS)}")
    if name == "c":
        raise KernelsError(f"kernels='c': not all of it is here yet ({num_threads} on {device})")
    return TorchKernels(dtype)
