"""A linear layer that keeps its weight quantised, and dequantises it whenever it is used.

It stands where transformers had an `nn.Linear`, until a maker of kernels takes the weight over. Its
own forward is the reference that packed kernels are compared with; it is not meant to be fast.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from minedraft.model.quantised.grouped import GroupedWeight


class QuantisedLinear(nn.Module):
    """`nn.Linear` with a `GroupedWeight`.

    Args:
        linear: The layer whose place it takes; its bias stays.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        # torch's stub says the bias is never None.
        self.bias = cast("nn.Parameter | None", linear.bias)
        self._grouped: GroupedWeight | None = None

    @property
    def grouped(self) -> GroupedWeight:
        """The weight, once it is there."""
        if self._grouped is None:
            raise RuntimeError("a quantised layer was used before it was loaded")
        return self._grouped

    def fill(self, weight: GroupedWeight) -> None:
        """Give it its weight."""
        self._grouped = weight

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        return F.linear(x, self.grouped.dequantised(x.dtype), self.bias)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:  # noqa: ANN401, FBT001, FBT002 torch's own
        """Move the weight where parameters are moved; its dtypes stay."""
        if self._grouped is not None:
            weight = self._grouped
            device = fn(weight.codes).device
            self._grouped = replace(
                weight,
                codes=weight.codes.to(device),
                scales=weight.scales.to(device),
                offsets=weight.offsets.to(device),
            )
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
