"""Counter-based noise keyed by (seed, position, stream, token). Holds no state.

The noise of a token is a pure function of its key, so drafter and verifier, any batch, any subset
of the vocabulary and any retry see the same value. It is the SplitMix64 sequence (Steele, Lea,
Flood 2014): the row key is its seed, the token id its index. Only integer operations and IEEE
add, multiply and divide are used, one per kernel, so that the bits agree on every device; even the
logarithm is ours, because library logarithms differ in the last place between devices and, on
some, between the vector body and the tail of a tensor.

Gumbel noise is -log E with E a standard exponential. The E of a vocabulary are made in groups of 64
neighbours, from the smallest. That one, the group minimum, is itself exponential with a 64th of the
mean; its token is uniform; and what the others have above it is standard exponential again, because
an exponential has no memory. So all E are independent and exactly exponential, yet one hash per
group says which groups a draw over the whole vocabulary may skip.

Resolution: 52 bits. With h the top 52 bits of the hash, w = (h + 1/2) / 2**52 lies strictly inside
(0, 1), both w and 1 - w are exact in float64, and an exponential is -log(1 - w). Large Gumbel
values come from *small* w, in -log(1 - w) = w + w**2/2 + ..., on a grid of 2**-52, of 2**-58 for a
group minimum. So the largest value is 59 log 2 = 40.9. The probability p of a token has a relative
error of at most 2**-52 / p: a part in a thousand at p = 2e-13. (With 24 bits it would be 20 % at
p = 2.5e-8, which a tail of 40,000 unlikely tokens would show.) The smallest value is -3.7.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

RESOLUTION_BITS: Final = 52
_LANE_BITS: Final = 6
GROUP: Final = 1 << _LANE_BITS
"""Neighbouring tokens whose smallest exponential comes from one hash."""

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB
_LN_2: Final = 0.6931471805599453
_SQRT_HALF: Final = 0.7071067811865476
_GROUP_INDEX: Final = 1 << 40  # the hashes of groups come after those of any token
_LOG_TERMS: Final = 10  # of the atanh series; |s| <= 0.172, so the next one is below 3e-17


class Stream(IntEnum):
    """Independent uses of one position."""

    TARGET = 0
    """The coupled draw; shared by drafter and verifier."""
    ACCEPT = 1
    """The uniform of rejection sampling's test."""
    RESIDUAL = 2
    """The draw from the residual distribution of rejection sampling."""
    SYNTHETIC = 3
    """The coin of a synthetic drafter."""
    SYNTHETIC_SCORE = 4
    """What a synthetic drafter says of a token."""


def row_key(seed: int, position: int, stream: Stream = Stream.TARGET) -> int:
    """Return the key of all noise of one row at one absolute position.

    Args:
        seed: 0..2**64-1.
        position: Position of the token to draw, prompt included; >= 0.
        stream: Which use.

    Returns:
        A signed 64-bit integer, as torch wants it.
    """
    key = _mix((seed + _GOLDEN) & _MASK)
    key = _mix(key ^ (position & _MASK))
    return _signed(_mix((key + _GOLDEN * (1 + stream)) & _MASK))


def row_keys(keys: Sequence[int], device: torch.device) -> Tensor:
    """[R] int64 from keys of `row_key`."""
    return torch.tensor(keys, dtype=torch.int64, device=device)


def bits(keys: Tensor, token_ids: Tensor) -> Tensor:
    """Hash tokens under keys.

    Args:
        keys: int64, of `row_key`; broadcasts against token_ids.
        token_ids: int64, >= 0.

    Returns:
        int64 in [0, 2**52), in the broadcast shape.
    """
    state = keys + (token_ids + 1) * _signed(_GOLDEN)
    shifted = torch.empty_like(state)
    _xor_shift(state, 30, shifted).mul_(_signed(_MIX_1))  # torch's products wrap
    _xor_shift(state, 27, shifted).mul_(_signed(_MIX_2))
    _xor_shift(state, 31, shifted)
    shift = 64 - RESOLUTION_BITS
    return state.bitwise_right_shift_(shift).bitwise_and_((1 << RESOLUTION_BITS) - 1)


def uniform(keys: Tensor, token_ids: Tensor) -> Tensor:
    """Draw uniform noise, float64 strictly inside (0, 1); takes the arguments of `bits`."""
    return (bits(keys, token_ids).double() + 0.5) * 2.0**-RESOLUTION_BITS


def gumbel(keys: Tensor, token_ids: Tensor) -> Tensor:
    """Draw standard Gumbel noise, float64, equal on every device; takes the arguments of `bits`."""
    groups = token_ids >> _LANE_BITS
    own = _exponential(keys, token_ids).masked_fill_(group_argmins(keys, groups) == token_ids, 0.0)
    return log(own.add_(group_minima(keys, groups))).neg_()


def group_minima(keys: Tensor, groups: Tensor) -> Tensor:
    """Draw the smallest exponential of each group, which bounds the Gumbel noise of its tokens.

    Args:
        keys: int64, of `row_key`; broadcasts against groups.
        groups: int64, token id // GROUP.

    Returns:
        float64, > 0.
    """
    return _exponential(keys, 2 * groups + _GROUP_INDEX).mul_(1.0 / GROUP)


def group_argmins(keys: Tensor, groups: Tensor) -> Tensor:
    """Return the token that has each group's minimum, int64; arguments of `group_minima`."""
    lane = bits(keys, 2 * groups + (_GROUP_INDEX + 1)) >> (RESOLUTION_BITS - _LANE_BITS)
    return lane.add_(groups << _LANE_BITS)


def uniform_at(seed: int, position: int, stream: Stream) -> float:
    """The uniform of token 0 of a stream, in pure Python; strictly inside (0, 1)."""
    hashed = _mix((row_key(seed, position, stream) + _GOLDEN) & _MASK) >> (64 - RESOLUTION_BITS)
    return (hashed + 0.5) * 2.0**-RESOLUTION_BITS


def log(x: Tensor) -> Tensor:
    """Natural logarithm of positive normal float64, from IEEE operations; error below 1e-15."""
    mantissa, exponent = torch.frexp(x)  # x = mantissa * 2**exponent, mantissa in [1/2, 1)
    is_low = mantissa < _SQRT_HALF
    mantissa = torch.where(is_low, mantissa + mantissa, mantissa)
    power = exponent.double().sub_(is_low.double())
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = torch.full_like(s, 1.0 / (2 * _LOG_TERMS - 1))
    for n in range(_LOG_TERMS - 2, -1, -1):  # log mantissa = 2 (s + s**3/3 + s**5/5 + ...)
        series.mul_(square).add_(1.0 / (2 * n + 1))
    return power.mul_(_LN_2).add_(series.mul_(s).mul_(2.0))


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _exponential(keys: Tensor, indices: Tensor) -> Tensor:
    """Standard exponential noise, float64, from 2**-53 to 53 log 2."""
    return log(1.0 - uniform(keys, indices)).neg_()


def _xor_shift(state: Tensor, shift: int, scratch: Tensor) -> Tensor:
    torch.bitwise_right_shift(state, shift, out=scratch)
    scratch.bitwise_and_((1 << (64 - shift)) - 1)  # the shift copied the sign
    return state.bitwise_xor_(scratch)
