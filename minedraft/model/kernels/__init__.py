"""The arithmetic of a forward pass behind one interface, by several makers. Knows no model."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import ConfigError, KernelsError
from minedraft.types import KERNELS

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch

    from minedraft.model.kernels.interface import Kernels

log = structlog.get_logger(__name__)


def select(
    name: str,
    dtype: torch.dtype,
    num_threads: int,
    *,
    device: torch.device | None = None,
    spare: Collection[int] = (),
) -> Kernels:
    """Make the kernels of a model. Call it on the device thread: their threads stay on its cores.

    Args:
        name: One of `KERNELS`. `auto`: C on a CPU that has an object, else torch, and the log says
            why, once per process.
        dtype: Of activations, keys and values: float32 or bfloat16.
        num_threads: Threads of a step, the device thread among them.
        device: Where the model runs; None: the CPU.
        spare: Cores for a thread more each, of wide steps; only the C kernels have them.

    Raises:
        ConfigError: no such maker.
        KernelsError: C was asked for, by name or by `MINEDRAFT_KERNELS_ISA`, and cannot run here.
    """
    from minedraft.model.kernels.c.library import is_forced
    from minedraft.model.kernels.c.maker import CKernels
    from minedraft.model.kernels.torch_maker import TorchKernels

    if name not in KERNELS:
        raise ConfigError(f"kernels={name!r}: want one of {', '.join(KERNELS)}")
    if name == "torch" or (name == "auto" and device is not None and device.type != "cpu"):
        return TorchKernels(dtype)
    if device is not None and device.type != "cpu":
        raise KernelsError(f"kernels='c': computes on CPUs, not on {device}")
    try:
        return CKernels(dtype, num_threads, spare)
    except KernelsError as err:
        if name == "c" or is_forced():
            raise
        _say_once(str(err))
        return TorchKernels(dtype)


@cache
def _say_once(reason: str) -> None:
    log.warning("kernels.torch", reason=reason)
