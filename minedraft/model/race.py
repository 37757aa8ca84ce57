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


def race(rows: Tensor, token_ids: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
    """Draw a token for each row, in proportion to weights.

    Args:
        rows: [N] int64, ascending; every row 0..R-1 occurs.
        token_ids: [N] int64.
        weights: [N] float64, >= 0; at least one of each row is positive.
        keys: [R] int64, of `noise.row_key`.

    Returns:
        [R] int64.
    """
    uniform = noise.uniform(keys[rows], token_ids)
    promise = weights / uniform  # bounds exp(perturbed score), see `front_runners`
    best = _largest(rows, promise, len(keys))
    seen = torch.where(promise == best[rows], weights / -torch.log1p(-uniform), 0.0)
    bound = _largest(rows, seen, len(keys)) * (1.0 - _SLACK)
    ahead = promise >= bound[rows]
    scores = weights[ahead].log()
    entries = Entries(rows[ahead], token_ids[ahead], scores, torch.zeros_like(rows[ahead]))
    return pick(entries, keys)


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
    best = _largest(entries.rows, noisy, len(keys))
    order = torch.arange(len(noisy), device=noisy.device)
    order = torch.where(noisy == best[entries.rows], order, len(noisy))
    first = torch.full((len(keys),), len(noisy), device=noisy.device)
    return entries.token_ids[first.scatter_reduce_(0, entries.rows, order, "amin")]


def _largest(rows: Tensor, values: Tensor, num_rows: int) -> Tensor:
    """[num_rows]: the largest value of each row."""
    return values.new_full((num_rows,), -torch.inf).scatter_reduce_(0, rows, values, "amax")


def _argmax_in(values: Tensor, maxima: Tensor) -> Tensor:
    """Argmax given the maxima of chunks; several times faster than in one step."""
    chunk = maxima.argmax(-1)
    rows = torch.arange(values.shape[0], device=values.device)
    lanes = values.view(values.shape[0], -1, CHUNK)[rows, chunk]  # [R, CHUNK]
    return chunk * CHUNK + lanes.argmax(-1)
