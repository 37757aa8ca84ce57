"""The norm behind the last layer, over the kernels: the sums of a row do not depend on others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.blocks.block import Norm
    from minedraft.model.kernels.interface import Kernels


class StoredNorm(nn.Module):
    """An RMS norm over the kernels.

    Args:
        kernels: The arithmetic.
        norm: Its weight.
    """

    def __init__(self, kernels: Kernels, norm: Norm) -> None:
        super().__init__()
        self._kernels = kernels
        self._norm = norm

    def forward(self, x: Tensor) -> Tensor:
        """[..., H] -> [..., H]."""
        norm = self._norm
        rows = x.reshape(-1, x.shape[-1])
        out = self._kernels.norm(rows, norm.weight, norm.eps, plus_one=norm.plus_one)
        return out.view(x.shape)
