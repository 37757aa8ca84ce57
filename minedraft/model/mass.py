"""What a token weighs: exp(score) by a fixed sequence of IEEE operations. Same bits on every maker.

Library exponentials differ in the last place between CPUs, and between the body and the tail of one
tensor. Where top-p ends must not: drafter and verifier decide it on different machines, in torch
and in C (`kernels/c/src/draw_mass.h`). So a *weight* is a float32 made of additions and
multiplications alone, one per kernel, so that none contracts. A *mass* is a weight in units of
2**-40 of the best token's, an integer: sums of masses are exact in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor

MASS_SCALE: Final = 2.0**40
"""Mass of a row's best token; 2**22 of them fit into int64."""

_LOWEST_POWER: Final = -60.0  # scores from there down all weigh 2**-60, a mass of 0
_LOG2_E: Final = float.fromhex("0x1.715476p+0")  # every constant is a float32
_SHIFT: Final = 1.5 * 2.0**23  # a float32 of that size has a last place of 1
_SERIES: Final = tuple(
    float.fromhex(x)
    for x in ("0x1.3cea88p-7", "0x1.c6b752p-5", "0x1.ebf9bcp-3", "0x1.62e42ap-1", "0x1p+0")
)
_FIRST: Final = float.fromhex("0x1.5bba1p-10")  # 2**f on |f| <= 1/2 by a polynomial, to 2e-7
_MASS_SHIFT: Final = 6144.0  # a float64 between 2**12 and 2**13 has a last place of 2**-40
_MASS_SHIFT_BITS: Final = 0x40B8000000000000
_CPU_PIECE: Final = 1 << 16  # elements that stay in a core's cache from kernel to kernel


def weights(scores: Tensor) -> Tensor:
    """e**score, float32, within (2 + |score|) * 1e-7 of it.

    Args:
        scores: Float32, any shape, <= 0.
    """
    power = (scores * _LOG2_E).clamp_(min=_LOWEST_POWER)
    shifted = power + _SHIFT  # its low bits are the integer nearest to `power`
    fraction = power.sub_(shifted - _SHIFT)
    result = fraction * _FIRST
    for coefficient in _SERIES[:-1]:
        result.add_(coefficient).mul_(fraction)
    result.add_(_SERIES[-1])
    result.view(torch.int32).add_(shifted.view(torch.int32).bitwise_left_shift_(23))
    return result


def masses(scores: Tensor) -> Tensor:
    """Weights of scores as integers, int64 in the same shape: rounded, ties to even."""
    shifted = weights(scores).double().add_(_MASS_SHIFT)
    return shifted.view(torch.int64).sub_(_MASS_SHIFT_BITS)


def totals(scores: Tensor) -> Tensor:
    """[R] int64: the masses of each row of [R, n] scores, summed exactly."""
    if scores.device.type != "cpu":
        return masses(scores).sum(-1)
    pieces = [torch.stack([masses(x).sum() for x in row.split(_CPU_PIECE)]) for row in scores]
    return torch.stack(pieces).sum(-1)
