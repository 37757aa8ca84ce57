"""Linear layers over the kernels, for the parts of a model that keep their own forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.kernels.interface import Kernels, Stored


class StoredLinear(nn.Module):
    """`nn.Linear` over the kernels.

    Args:
        kernels: The arithmetic.
        stored: The weight and bias, of `kernels.store`.
    """

    def __init__(self, kernels: Kernels, stored: Stored) -> None:
        super().__init__()
        self.in_features, self.out_features = stored.in_features, stored.out_features
        self.stored = stored
        self._kernels = kernels

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        out = self._kernels.linear(x.reshape(-1, self.in_features), self.stored)
        return out.view(*x.shape[:-1], self.out_features)


def store_linears(model: nn.Module, kernels: Kernels) -> int:
    """Replace every plain linear layer by a stored one, in place; dense weights are released.

    A head tied to the embedding is stored from a copy; the embedding stays.

    Returns:
        How many were replaced.
    """
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, StoredLinear(kernels, store(kernels, child)))
                count += 1
    return count


def store(kernels: Kernels, *linears: nn.Linear) -> Stored:
    """Store linear layers of one input as one, their outputs side by side."""
    weights = [linear.weight.detach() for linear in linears]
    biases = [bias.detach() for linear in linears if (bias := bias_of(linear)) is not None]
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    return kernels.store(weight, torch.cat(biases) if biases else None)


def bias_of(linear: nn.Linear) -> Tensor | None:
    """The bias; torch's stub says that it is never None."""
    return cast("Tensor | None", linear.bias)
