"""Decides in which dtype a checkpoint's weights stay in memory. Reads headers, no weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from safetensors import safe_open

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

_INTEGERS: Final = frozenset({"BOOL", "U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64"})


def stored_dtype(path: Path, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to read weights in, for activations in `dtype`.

    A bfloat16 checkpoint stays so: its weights are widened where they are used, exactly. Anything
    else takes the dtype of the activations: float32 is what it is, and float16 is widened once,
    exactly too, because no kernel reads it.
    """
    if dtype != torch.float32:
        return dtype
    kinds: set[str] = set()
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            kinds |= {opened.get_slice(name).get_dtype() for name in opened.keys()}  # noqa: SIM118 no mapping
    return torch.bfloat16 if kinds - _INTEGERS == {"BF16"} else dtype


def restore_buffers(model: nn.Module, dtype: torch.dtype) -> bool:
    """Recompute buffers that reading a model in a narrower dtype has rounded.

    transformers makes buffers that no file holds in the dtype of the weights: gemma's factor of the
    embedding is 55.5 in bfloat16 and 55.4256 in float32.

    Returns:
        Whether no rounded buffer is left. Else the model has to be read in `dtype`.
    """
    is_whole = True
    for module in model.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            if not buffer.is_floating_point() or buffer.dtype.itemsize >= dtype.itemsize:
                continue
            scale = getattr(module, "scalar_embed_scale", None)
            if name == "embed_scale" and isinstance(scale, float):
                module.embed_scale = torch.tensor(scale, dtype=dtype, device=buffer.device)
            else:
                is_whole = False
    return is_whole
