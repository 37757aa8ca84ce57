"""The dtype that a model is served in: what was asked for, or what `auto` means here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from minedraft.cpu import choose_dtype_here, remark_here

if TYPE_CHECKING:
    import torch

log = structlog.get_logger(__name__)


def settle_dtype(dtype: str, device: torch.device) -> str:
    """Turn `auto` into a dtype, and log the choice with its reason.

    Args:
        dtype: `auto`, `float32` or `bfloat16`.
        device: Where the model runs. `auto` knows CPUs; anywhere else it is float32.

    Raises:
        ConfigError: another dtype.
    """
    chosen, why = choose_dtype_here(dtype)
    if device.type != "cpu":
        return "float32" if dtype == "auto" else dtype
    if dtype == "auto":
        log.info("model.dtype", dtype=chosen, reason=why)
    elif said := remark_here(dtype):
        log.warning("model.dtype", dtype=dtype, reason=said)
    return chosen
