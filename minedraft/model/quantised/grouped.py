"""An integer weight with a scale and an offset per group of inputs: what every int format becomes.

Refuses what does not fit together, and scales that are no numbers. Says nothing of kernels: a maker
packs it as it likes, or takes the dequantised weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch

from minedraft.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_PER_BYTE: Final = {4: 2, 8: 1}
"""Codes of a byte by bits."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupedWeight:
    """w[n, k] = codes[n, k] * scales[n, k / group] + offsets[n, k / group], in float32.

    With an offset in place of a zero point every format fits, and one multiply-add widens a code:
    (q - z) * s is q * s + (-z * s), exactly where s has 16 bits and z is a whole number.
    """

    codes: Tensor
    """Unsigned, uint8: [N, K], or [N, K / 2] of 4 bits, inputs of even index in the low halves."""
    scales: Tensor
    """[N, K / group] float32."""
    offsets: Tensor
    """[N, K / group] float32."""
    bits: int
    group: int
    """Inputs per scale."""

    def __post_init__(self) -> None:
        groups = self.scales.shape[-1]
        fits = (
            self.codes.dtype == torch.uint8
            and self.scales.dtype == self.offsets.dtype == torch.float32
            and self.scales.shape == self.offsets.shape
            and self.codes.shape == (self.scales.shape[0], groups * self.group // self._per_byte)
            and (groups * self.group) % self._per_byte == 0
        )
        if not fits:
            raise ModelError(
                f"codes {tuple(self.codes.shape)} of {self.bits} bits, scales "
                f"{tuple(self.scales.shape)} and offsets {tuple(self.offsets.shape)} do not fit "
                f"groups of {self.group}"
            )
        if not (self.scales.isfinite().all() and self.offsets.isfinite().all()):
            raise ModelError("a scale or zero point is not a finite number")

    @property
    def out_features(self) -> int:
        """Rows of the weight."""
        return self.codes.shape[0]

    @property
    def in_features(self) -> int:
        """Columns of the weight."""
        return self.codes.shape[1] * self._per_byte

    @property
    def num_bytes(self) -> int:
        """Memory of codes, scales and offsets."""
        return self.codes.nbytes + self.scales.nbytes + self.offsets.nbytes

    def dequantised(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """[N, K]: the weight, rounded to `dtype` once."""
        codes = self._unpacked().view(self.out_features, -1, self.group).to(torch.float32)
        weight = codes.mul_(self.scales[..., None]).add_(self.offsets[..., None])
        return weight.view(self.out_features, -1).to(dtype)

    def rows(self, index: Tensor) -> GroupedWeight:
        """The weight with other rows, or rows in another order."""
        return replace(
            self, codes=self.codes[index], scales=self.scales[index], offsets=self.offsets[index]
        )

    @property
    def _per_byte(self) -> int:
        return _PER_BYTE[self.bits]

    def _unpacked(self) -> Tensor:
        """[N, K] uint8."""
        if self.bits == 8:  # noqa: PLR2004 a byte
            return self.codes
        return torch.stack((self.codes & 15, self.codes >> 4), dim=-1).flatten(-2)


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """Pack codes as `GroupedWeight` has them.

    Args:
        codes: [N, K] uint8, K even.
        bits: 4 or 8.
    """
    if bits == 8:  # noqa: PLR2004 a byte
        return codes.contiguous()
    return codes[:, 0::2] | (codes[:, 1::2] << 4)


def join(weights: Sequence[GroupedWeight]) -> GroupedWeight:
    """One weight over the same inputs with the rows of several, in order, of equal groups."""
    first = weights[0]
    return GroupedWeight(
        torch.cat([weight.codes for weight in weights]),
        torch.cat([weight.scales for weight in weights]),
        torch.cat([weight.offsets for weight in weights]),
        first.bits,
        first.group,
    )
