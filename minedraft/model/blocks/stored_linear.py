"""Linear layers over the kernels, for blocks and for layers that keep their own forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.kernels.interface import Kernels, Stored


class Product(Protocol):
    """A linear layer as blocks use it, whole or split over ranks."""

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""

    def add(self, x: Tensor, residual: Tensor) -> None:
        """Add the product of x [T, in] into the residual [T, out], in place."""


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
        if x.ndim == 2:  # noqa: PLR2004 rows already
            return self._kernels.linear(x, self.stored)
        out = self._kernels.linear(x.reshape(-1, self.in_features), self.stored)
        return out.view(*x.shape[:-1], self.out_features)

    def add(self, x: Tensor, residual: Tensor) -> None:
        """See Product."""
        self._kernels.linear(x, self.stored, add_to=residual)


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
                setattr(parent, name, store(kernels, child))
                count += 1
    return count


def store(kernels: Kernels, *linears: nn.Linear) -> StoredLinear:
    """Store linear layers of one input as one, their outputs side by side.

    Args:
        kernels: The arithmetic.
        *linears: At least one; all with a bias or all without.
    """
    weights = [linear.weight.detach() for linear in linears]
    biases = [bias.detach() for linear in linears if (bias := bias_of(linear)) is not None]
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    return StoredLinear(kernels, kernels.store(weight, torch.cat(biases) if biases else None))


def bias_of(linear: nn.Linear) -> Tensor | None:
    """Return the bias; torch's stub says that it is never None."""
    return cast("Tensor | None", linear.bias)
