"""Names what the steps of a model run on, in a few words: key of measured costs. No timing."""

from __future__ import annotations

import platform
from typing import Final

import torch

from minedraft.cpu import this_cpu

_MAX_NAME_CHARS: Final = 80
"""Longest name of a CPU or GPU; the whole stays under the 128 characters of the protocol."""


def device_words(device: torch.device, *, num_ranks: int = 1) -> str:
    """Name a device, such as `cpu AMD EPYC 9454 x2` or `cuda NVIDIA H200, 4 ranks`.

    Args:
        device: Where the model is.
        num_ranks: Processes that share the model.

    Returns:
        At most 128 printable characters. Of a CPU they end with the threads of a step.
    """
    if device.type == "cuda":
        name, threads = torch.cuda.get_device_name(device), ""
    else:
        name, threads = this_cpu().name or platform.machine(), f" x{torch.get_num_threads()}"
    name = "".join(filter(str.isprintable, name))[:_MAX_NAME_CHARS]
    ranks = f", {num_ranks} ranks" if num_ranks > 1 else ""
    return f"{device.type} {name}{threads}{ranks}"
