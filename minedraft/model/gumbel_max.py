"""Draws tokens by Gumbel-max, and finds the largest score. Knows no parameters.

Gumbel-max: argmax(log weight + Gumbel noise) is a sample in proportion to the weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from minedraft.model import noise, truncation
from minedraft.model.truncation import CHUNK, Entries

if TYPE_CHECKING:
    from torch import Tensor

_NO_TOKEN: Final = 1 << 62
_SLACK: Final = 1e-4  # relative, on bounds that only have to be safe; float32 thresholds stay in it


def argmax(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return id [R] int64 and value of the largest score; the lowest id of equals; NaN wins."""
    values = values.float()  # loses nothing of 16-bit types
    best = _largest_id(values)  # to torch NaN is the largest number there is
    return best, values.gather(1, best[:, None])[:, 0]


def two_largest(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Id [R] int64 and value of the largest score, as `argmax` has them, and the largest other."""
    values = values.float()
    if values.shape[1] % CHUNK:
        best = values.argmax(-1)
        others = values.scatter(1, best[:, None], -torch.inf).amax(-1)
        return best, values.gather(1, best[:, None])[:, 0], others
    lanes = values.view(values.shape[0], -1, CHUNK)
    maxima = lanes.amax(-1)
    largest = maxima.amax(-1)
    chunk = maxima.argmax(-1)
    best = _first_in(values, chunk)
    own = lanes[torch.arange(len(chunk), device=chunk.device), chunk]  # a copy
    own.scatter_(1, (best % CHUNK)[:, None], -torch.inf)
    maxima.scatter_(1, chunk[:, None], own.amax(-1, keepdim=True))
    return best, largest, maxima.amax(-1)


def draw_by_weight(rows: Tensor, token_ids: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
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
    minima = noise.group_minima(keys[:, None], every)[rows, groups]
    reach = weights / minima  # bounds exp(perturbed score), see `candidates`
    argmins = noise.group_argmins(keys[:, None], every)[rows, groups]
    seen = torch.where(argmins == token_ids, reach, 0.0)
    best = reach == _largest(rows, reach, len(keys))[rows]
    seen[best] = weights[best] * noise.gumbel(keys[rows[best]], token_ids[best]).exp()
    bound = _largest(rows, seen, len(keys)) * (1.0 - _SLACK)
    ahead = reach >= bound[rows]
    scores = weights[ahead].log()
    entries = Entries(rows[ahead], token_ids[ahead], scores, torch.zeros_like(rows[ahead]))
    return argmax_perturbed(entries, keys)


def candidates(scores: Tensor, keys: Tensor, reach: float = 0.0) -> Entries:
    """Return the few tokens of each untruncated row that can have the largest perturbed score.

    The smallest exponential of a group bounds the noise of all its tokens. So a token whose
    exp(score) over that minimum is below exp(a known perturbed score) cannot win, and needs no
    noise. Known are the scores of the tokens that have a group's minimum, and of the token with
    the highest bound.

    Args:
        scores: [R, V'] float32, 0 at each row's best; V' a multiple of CHUNK.
        keys: [R] int64, of `noise.row_key`.
        reach: In nats; the second largest is among them too if it is within it.
    """
    maxima = scores.view(len(keys), -1, CHUNK).amax(-1)  # [R, C]: a chunk is a group
    groups = torch.arange(maxima.shape[1], device=scores.device)
    minima = noise.group_minima(keys[:, None], groups)
    tops = maxima.double().exp_().div_(minima)
    argmins = noise.group_argmins(keys[:, None], groups)
    seen = scores.gather(1, argmins).double().exp_().div_(minima)
    first = _first_in(scores, tops.argmax(-1))  # [R]
    noisy = scores.gather(1, first[:, None])[:, 0].double() + noise.gumbel(keys, first)
    bound = torch.maximum(seen.amax(-1), noisy.exp_())
    if reach:
        bound.mul_(math.exp(-reach))
        if seen.shape[1] > 1:
            bound = torch.maximum(bound, seen.topk(2, dim=-1).values[:, 1])
    bound.mul_(1.0 - _SLACK)
    row, chunk = (tops >= bound[:, None]).nonzero(as_tuple=True)
    thresholds = minima[row, chunk].mul_(bound[row]).log_().float()
    rows, ids = truncation.at_least(scores, row * maxima.shape[1] + chunk, thresholds)
    return Entries(rows, ids, scores[rows, ids], torch.zeros_like(rows))


def argmax_perturbed(entries: Entries, keys: Tensor) -> Tensor:
    """Return per row the token of the largest perturbed score, the lowest of equals: [R] int64."""
    return _winners(entries, keys)[0]


def two_largest_perturbed(entries: Entries, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `argmax_perturbed` does, and per row the two largest perturbed scores: float64.

    Where a row has one token, the second is -inf.
    """
    winners, best, noisy = _winners(entries, keys)
    noisy[entries.token_ids == winners[entries.rows]] = -torch.inf
    return winners, best, _largest(entries.rows, noisy, len(keys))


def _winners(entries: Entries, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Per row the token of the largest perturbed score and that score; per entry its own."""
    noisy = entries.scores.double() + noise.gumbel(keys[entries.rows], entries.token_ids)
    best = _largest(entries.rows, noisy, len(keys))
    token_ids = torch.where(noisy == best[entries.rows], entries.token_ids, _NO_TOKEN)
    lowest = torch.full((len(keys),), _NO_TOKEN, device=noisy.device)
    return lowest.scatter_reduce_(0, entries.rows, token_ids, "amin"), best, noisy


def _largest_id(values: Tensor) -> Tensor:
    if values.shape[1] % CHUNK:
        return values.argmax(-1)
    # Given the maxima of chunks it is several times faster than in one step.
    return _first_in(values, values.view(values.shape[0], -1, CHUNK).amax(-1).argmax(-1))


def _largest(rows: Tensor, values: Tensor, num_rows: int) -> Tensor:
    """Return the largest value of each row: [num_rows]."""
    return values.new_full((num_rows,), -torch.inf).scatter_reduce_(0, rows, values, "amax")


def _first_in(values: Tensor, chunks: Tensor) -> Tensor:
    """Return the first of the largest values in one chunk of each row: [R] int64."""
    rows = torch.arange(values.shape[0], device=values.device)
    lanes = values.view(values.shape[0], -1, CHUNK)[rows, chunks]  # [R, CHUNK]
    return chunks * CHUNK + lanes.argmax(-1)
