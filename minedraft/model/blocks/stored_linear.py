"""Linear layers over the kernels, for blocks and for layers that keep their own forward."""

from __future__ import annotations

from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard, cast

import torch
from torch import nn

from minedraft.model.quantised.grouped import join
from minedraft.model.quantised.linear import QuantisedLinear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.model.kernels.interface import Kernels, Stored

Linear: TypeAlias = nn.Linear | QuantisedLinear
"""A linear layer whose weight the kernels can take over."""


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
        self.num_bytes = stored.num_bytes
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


class JoinedLinear(nn.Module):
    """Linear layers of one input, their outputs side by side, whose weights are of several kinds.

    Args:
        kernels: The arithmetic.
        parts: In the order of their outputs.
    """

    def __init__(self, kernels: Kernels, parts: Sequence[Stored]) -> None:
        super().__init__()
        ends = list(accumulate((part.out_features for part in parts), initial=0))
        self.in_features, self.out_features = parts[0].in_features, ends[-1]
        self.num_bytes = sum(part.num_bytes for part in parts)
        self._parts = list(zip(pairwise(ends), parts, strict=True))
        self._kernels = kernels

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        rows = x.reshape(-1, self.in_features)
        out = rows.new_empty(rows.shape[0], self.out_features)
        for (begin, end), part in self._parts:
            self._kernels.linear(rows, part, out=out[:, begin:end])
        return out.view(*x.shape[:-1], self.out_features)

    def add(self, x: Tensor, residual: Tensor) -> None:
        """See Product."""
        for (begin, end), part in self._parts:
            self._kernels.linear(x, part, add_to=residual[:, begin:end])


def store_linears(model: nn.Module, kernels: Kernels) -> int:
    """Replace every plain linear layer by a stored one, in place; dense weights are released.

    A head tied to the embedding is stored from a copy; the embedding stays.

    Returns:
        How many were replaced.
    """
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if is_linear(child):
                setattr(parent, name, store(kernels, child))
                count += 1
    return count


def store(kernels: Kernels, *linears: Linear) -> StoredLinear | JoinedLinear:
    """Store linear layers of one input as one, their outputs side by side.

    Args:
        kernels: The arithmetic.
        *linears: At least one; all with a bias or all without.
    """
    runs = [list(run) for _, run in groupby(linears, key=_kind)]
    parts = [_store_alike(kernels, run) for run in runs]
    return StoredLinear(kernels, parts[0]) if len(parts) == 1 else JoinedLinear(kernels, parts)


def is_linear(module: nn.Module) -> TypeGuard[Linear]:
    """Whether the kernels can take the weight of a module over."""
    return type(module) in {nn.Linear, QuantisedLinear}


def bias_of(linear: Linear) -> Tensor | None:
    """Return the bias; torch's stub says that it is never None."""
    return cast("Tensor | None", linear.bias)


def _kind(linear: Linear) -> tuple[object, ...]:
    """What weights must have in common to be stored as one."""
    if isinstance(linear, QuantisedLinear):
        return linear.grouped.bits, linear.grouped.group
    return (linear.weight.dtype,)


def _store_alike(kernels: Kernels, linears: Sequence[Linear]) -> Stored:
    biases = [bias.detach() for linear in linears if (bias := bias_of(linear)) is not None]
    bias = torch.cat(biases) if biases else None
    groups = [linear.grouped for linear in linears if isinstance(linear, QuantisedLinear)]
    if groups:
        whole = groups[0] if len(groups) == 1 else join(groups)
        return kernels.store_groups(whole.codes, whole.scales, whole.offsets, whole.bits, bias)
    weights = [linear.weight.detach() for linear in linears if isinstance(linear, nn.Linear)]
    return kernels.store(weights[0] if len(weights) == 1 else torch.cat(weights), bias)
