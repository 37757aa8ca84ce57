"""Lets a model run its own forward pass: eager attention, weights as wide as its activations.

Each module's weights are widened while it runs and narrowed again behind it, so that no more than
one module's is ever held twice. Widening bfloat16 to float32 is exact.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from transformers import PreTrainedModel


@contextmanager
def own_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let the model attend by its own eager code inside the context."""
    ours = model.config._attn_implementation  # noqa: SLF001 transformers has a setter, no getter
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(ours)


@contextmanager
def widened(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Run modules with their floating weights in `dtype` inside the context.

    Args:
        model: In eval mode; its weights are the same tensors afterwards.
        dtype: At least as wide as the weights.
    """
    handles = []
    for module in model.modules():
        narrow = [
            p
            for p in module.parameters(recurse=False)
            if p.is_floating_point() and p.dtype != dtype
        ]
        if not narrow:
            continue
        swap = (
            _EmbeddingRows(module, dtype)
            if isinstance(module, nn.Embedding)
            else _Swap(narrow, dtype)
        )
        handles.append(module.register_forward_pre_hook(swap.widen))
        handles.append(module.register_forward_hook(swap.restore, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Swap:
    """Widens some parameters around a call."""

    def __init__(self, parameters: list[nn.Parameter], dtype: torch.dtype) -> None:
        self._parameters = parameters
        self._dtype = dtype
        self._narrow: list[Tensor] = []

    def widen(self, _module: nn.Module, _args: tuple[object, ...]) -> None:
        self._narrow = [parameter.data for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.data = parameter.data.to(self._dtype)

    def restore(self, *_: object) -> None:
        for parameter, narrow in zip(self._parameters, self._narrow, strict=False):
            parameter.data = narrow
        self._narrow = []


class _EmbeddingRows:
    """Widens the rows of an embedding that a call looks up, and no others."""

    def __init__(self, module: nn.Embedding, dtype: torch.dtype) -> None:
        self._module = module
        self._dtype = dtype
        self._padding_idx = module.padding_idx
        self._narrow: Tensor | None = None

    def widen(self, _module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        ids, *rest = args
        self._narrow = self._module.weight.data
        self._module.weight.data = self._narrow[ids.flatten()].to(self._dtype)
        self._module.padding_idx = None  # matters to gradients only, and may be beyond these rows
        return (torch.arange(ids.numel(), device=ids.device).view(ids.shape), *rest)

    def restore(self, *_: object) -> None:
        if self._narrow is not None:
            self._module.weight.data = self._narrow
            self._module.padding_idx = self._padding_idx
            self._narrow = None
