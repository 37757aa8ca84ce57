"""The race for the largest perturbed score, and the plain one for the largest. Knows no parameters.

Gumbel-max: argmax(log weight + Gumbel noise) is a sample in proportion to the weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from minedraft.model import noise, truncation
from minedraft.model.scratch import scratch
from minedraft.model.truncation import CHUNK, Entries

if TYPE_CHECKING:
    from torch import Tensor

_SLACK: Final = 1e-5  # relative, on float32 bounds that only have to be safe


def argmax(values: Tensor) -> Tensor:
    """[R, V] -> [R] int64, the lowest id among equals; float32 loses nothing of 16-bit types."""
    values = values.float()
    if values.shape[1] % CHUNK:
        return values.argmax(-1)
    return _argmax_in(values, values.view(values.shape[0], -1, CHUNK).amax(-1))


def race(weights: Tensor, token_ids: Tensor, key: int) -> int:
    """Draw a token with probability in proportion to its weight.

    Args:
        weights: [n] float32 or float64, >= 0, at least one positive.
        token_ids: [n] int64.
        key: Of `noise.row_key`.

    Returns:
        One of token_ids.
    """
    gumbel = noise.gumbel(noise.row_keys([key], weights.device), token_ids)
    return int(token_ids[(weights.double().log() + gumbel).argmax()])


def front_runners(scores: Tensor, keys: Tensor) -> Entries:
    """The few tokens of each untruncated row that can still win the draw.

    With w the uniform behind a token's noise, -log(1 - w) >= w bounds the noise by -log w. So a
    token whose exp(score) / w is below exp(a perturbed score seen) has lost, and no logarithm has
    to be taken for it.
    """
    promise = truncation.exp(scores)  # [R, V']
    hashed = noise.bits_of_vocabulary(keys, scores.shape[1])
    uniforms = scratch("uniforms", (len(keys), scores.shape[1]), torch.float32, scores.device)
    promise.div_(uniforms.copy_(hashed).add_(0.5))  # exp(score) / w / 2**52
    maxima = promise.view(len(keys), -1, CHUNK).amax(-1)  # [R, C]
    best = _argmax_in(promise, maxima)[:, None]  # [R, 1]
    unit = 2.0**-noise.RESOLUTION_BITS
    uniform = (hashed.gather(1, best).double() + 0.5) * unit
    seen = scores.gather(1, best).double().exp() / -torch.log1p(-uniform)  # exp(perturbed score)
    bound = (seen * unit * (1.0 - _SLACK)).float()  # [R, 1]
    row, chunk = (maxima >= bound).nonzero(as_tuple=True)
    chunks = row * maxima.shape[1] + chunk
    rows, ids = truncation.at_least(promise, chunks, bound[row, 0])
    return Entries(rows, ids, scores[rows, ids], torch.zeros_like(rows))


def pick(entries: Entries, keys: Tensor) -> Tensor:
    """[R] int64: per row the token of the largest perturbed score, the first of equals."""
    noisy = entries.scores.double() + noise.gumbel(keys[entries.rows], entries.token_ids)
    best = noisy.new_full((len(keys),), -torch.inf).scatter_reduce_(0, entries.rows, noisy, "amax")
    order = torch.arange(len(noisy), device=noisy.device)
    order = torch.where(noisy == best[entries.rows], order, len(noisy))
    first = torch.full((len(keys),), len(noisy), device=noisy.device)
    return entries.token_ids[first.scatter_reduce_(0, entries.rows, order, "amin")]


def _argmax_in(values: Tensor, maxima: Tensor) -> Tensor:
    """Argmax given the maxima of chunks; several times faster than in one step."""
    chunk = maxima.argmax(-1)
    rows = torch.arange(values.shape[0], device=values.device)
    lanes = values.view(values.shape[0], -1, CHUNK)[rows, chunk]  # [R, CHUNK]
    return chunk * CHUNK + lanes.argmax(-1)
