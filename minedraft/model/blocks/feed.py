"""The MLPs of decoder layers over the kernels: gated, of experts, or a layer's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.blocks.stored_linear import Product, StoredLinear
    from minedraft.model.kernels.interface import Activation, Kernels


class GatedFeed(nn.Module):
    """down(activation(gate(x)) * up(x)).

    Args:
        kernels: The arithmetic.
        gate_up: Gates and ups side by side.
        down: Back to the hidden size.
        activation: Of the gates.
    """

    def __init__(
        self, kernels: Kernels, gate_up: Product, down: Product, activation: Activation
    ) -> None:
        super().__init__()
        self._kernels = kernels
        self._gate_up = gate_up
        self._down = down
        self._activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        return self._down(self._kernels.act_mul(self._gate_up(x), self._activation))

    def add(self, x: Tensor, residual: Tensor) -> None:
        """See Feed."""
        self._down.add(self._kernels.act_mul(self._gate_up(x), self._activation), residual)


@dataclass(frozen=True, slots=True)
class Routing:
    """How tokens choose experts."""

    num_chosen: int
    """Experts of each token."""
    is_normed: bool
    """Whether the weights of the chosen ones are made to add up to 1."""


class ExpertsFeed(nn.Module):
    """A mixture of gated experts.

    A token's experts add in rising order, whoever else chose them, so its sum has one order.

    Args:
        kernels: The arithmetic.
        router: [experts, hidden].
        experts: Gates and ups, and the way back, of each expert.
        activation: Of the gates.
        routing: How tokens choose.
    """

    def __init__(
        self,
        kernels: Kernels,
        router: StoredLinear,
        experts: list[tuple[StoredLinear, StoredLinear]],
        activation: Activation,
        routing: Routing,
    ) -> None:
        super().__init__()
        self._kernels = kernels
        self._router = router
        self._experts = nn.ModuleList(nn.ModuleList(pair) for pair in experts)
        self._pairs = experts
        self._activation = activation
        self._routing = routing

    def forward(self, x: Tensor) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        count = self._routing.num_chosen
        scores = torch.softmax(self._router(x), dim=-1, dtype=torch.float32)
        weights, chosen = scores.topk(count, dim=-1)  # [T, count]
        if self._routing.is_normed:
            weights /= weights.sum(dim=-1, keepdim=True)
        by_expert = chosen.flatten().argsort(stable=True)
        tokens = by_expert.div(count, rounding_mode="floor")
        shares = weights.to(x.dtype).flatten()[by_expert][:, None]
        counts = torch.bincount(chosen.flatten(), minlength=len(self._pairs)).tolist()
        total = torch.zeros_like(x)
        begin = 0
        for (gate_up, down), num_tokens in zip(self._pairs, counts, strict=True):
            if num_tokens == 0:
                continue
            ours = slice(begin, begin + num_tokens)
            gated = self._kernels.act_mul(gate_up(x[tokens[ours]]), self._activation)
            total.index_add_(0, tokens[ours], down(gated) * shares[ours])
            begin += num_tokens
        return total

    def add(self, x: Tensor, residual: Tensor) -> None:
        """See Feed."""
        residual.add_(self(x))


class OwnFeed(nn.Module):
    """The MLP of a layer as it is.

    Args:
        mlp: [1, T, hidden] -> [1, T, hidden], or a tuple that begins with it.
    """

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        out = self.mlp(x[None])
        return cast("Tensor", out[0] if isinstance(out, tuple) else out)[0]

    def add(self, x: Tensor, residual: Tensor) -> None:
        """See Feed."""
        residual.add_(self(x))
