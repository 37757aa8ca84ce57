"""The race for the largest perturbed score, and the plain one for the largest. Knows no parameters.

Gumbel-max: argmax(log weight + Gumbel noise) is a sample in proportion to the weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from minedraft.model import noise, truncation
from minedraft.model.truncation import CHUNK, Entries

if TYPE_CHECKING:
    from torch import Tensor

_SLACK: Final = 1e-4  # relative, on bounds that only have to be safe; float32 thresholds stay in it


def argmax(values: Tensor) -> tuple[Tensor, Tensor]:
    """[R, V] -> [R] int64, the lowest id among equals, and its value: NaN if there is any."""
    values = values.float()  # loses nothing of 16-bit types
    best = _largest_id(values)  # to torch NaN is the largest number there is
    return best, values.gather(1, best[:, None])[:, 0]


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
    groups = token_ids // noise.GROUP
    every = torch.arange(int(groups.max()) + 1, device=groups.device)
    leads = noise.leads(keys[:, None], every)[rows, groups]
    promise = weights / leads  # bounds exp(perturbed score), see `front_runners`
    leaders = noise.leaders(keys[:, None], every)[rows, groups]
    seen = torch.where(leaders == token_ids, promise, 0.0)
    best = promise == _largest(rows, promise, len(keys))[rows]
    seen[best] = weights[best] * noise.gumbel(keys[rows[best]], token_ids[best]).exp()
    bound = _largest(rows, seen, len(keys)) * (1.0 - _SLACK)
    ahead = promise >= bound[rows]
    scores = weights[ahead].log()
    entries = Entries(rows[ahead], token_ids[ahead], scores, torch.zeros_like(rows[ahead]))
    return pick(entries, keys)


def front_runners(scores: Tensor, keys: Tensor) -> Entries:
    """The few tokens of each untruncated row that can still win the draw.

    The lead of a group of tokens bounds the noise of each of them. So a token whose exp(score) over
    its group's lead is below exp(a perturbed score seen) has lost, and its noise is never made.
    What is seen: the leaders of all groups, and the token that promised most.

    Args:
        scores: [R, V'] float32, 0 at each row's best; V' a multiple of CHUNK.
        keys: [R] int64, of `noise.row_key`.
    """
    maxima = scores.view(len(keys), -1, CHUNK).amax(-1)  # [R, C]: a chunk is a group
    groups = torch.arange(maxima.shape[1], device=scores.device)
    leads = noise.leads(keys[:, None], groups)
    promise = maxima.double().exp_().div_(leads)
    leaders = noise.leaders(keys[:, None], groups)
    seen = scores.gather(1, leaders).double().exp_().div_(leads).amax(-1)
    first = _first_in(scores, promise.argmax(-1))  # [R]
    noisy = scores.gather(1, first[:, None])[:, 0].double() + noise.gumbel(keys, first)
    bound = torch.maximum(seen, noisy.exp_()).mul_(1.0 - _SLACK)
    row, chunk = (promise >= bound[:, None]).nonzero(as_tuple=True)
    thresholds = leads[row, chunk].mul_(bound[row]).log_().float()
    rows, ids = truncation.at_least(scores, row * maxima.shape[1] + chunk, thresholds)
    return Entries(rows, ids, scores[rows, ids], torch.zeros_like(rows))


def pick(entries: Entries, keys: Tensor) -> Tensor:
    """[R] int64: per row the token of the largest perturbed score, the first of equals."""
    noisy = entries.scores.double() + noise.gumbel(keys[entries.rows], entries.token_ids)
    best = _largest(entries.rows, noisy, len(keys))
    order = torch.arange(len(noisy), device=noisy.device)
    order = torch.where(noisy == best[entries.rows], order, len(noisy))
    first = torch.full((len(keys),), len(noisy), device=noisy.device)
    return entries.token_ids[first.scatter_reduce_(0, entries.rows, order, "amin")]


def _largest_id(values: Tensor) -> Tensor:
    if values.shape[1] % CHUNK:
        return values.argmax(-1)
    # Given the maxima of chunks it is several times faster than in one step.
    return _first_in(values, values.view(values.shape[0], -1, CHUNK).amax(-1).argmax(-1))


def _largest(rows: Tensor, values: Tensor, num_rows: int) -> Tensor:
    """[num_rows]: the largest value of each row."""
    return values.new_full((num_rows,), -torch.inf).scatter_reduce_(0, rows, values, "amax")


def _first_in(values: Tensor, chunks: Tensor) -> Tensor:
    """[R] int64: the first of the largest values in one chunk of each row."""
    rows = torch.arange(values.shape[0], device=values.device)
    lanes = values.view(values.shape[0], -1, CHUNK)[rows, chunks]  # [R, CHUNK]
    return chunks * CHUNK + lanes.argmax(-1)
