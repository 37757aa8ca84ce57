"""Log-probabilities of emitted tokens under the raw target. Ignores sampling parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from minedraft.model.scratch import scratch
from minedraft.model.truncation import CHUNK, Limits, candidates, truncate
from minedraft.types import RowParams, TokenLogprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

FLOOR: Final = -9999.0
"""Stands for minus infinity and for NaN, which JSON and clients cannot carry."""
_LOWEST: Final = -80.0  # e**-80 of one best token


def logprobs(
    logits: Tensor, token_ids: Sequence[int], counts: Sequence[int]
) -> list[TokenLogprobs]:
    """Compute log-probabilities of one token per row and of each row's likeliest ones.

    Args:
        logits: [R, V] of any float type, before any parameter; not modified.
        token_ids: R emitted tokens.
        counts: R numbers >= 0: how many of the likeliest to list (at most V are).

    Returns:
        R entries. `top` is ordered by falling probability, equal ones by id. The emitted token's
        value is the very number that stands in `top`, if it is there.
    """
    if not token_ids:
        return []
    values = _log_softmax(logits)
    chosen = values.gather(1, torch.tensor(token_ids, device=values.device)[:, None])[:, 0]
    tops = _tops(values, max(counts))
    return [
        TokenLogprobs(token, logprob, top[:count])
        for token, logprob, top, count in zip(token_ids, chosen.tolist(), tops, counts, strict=True)
    ]


def _log_softmax(logits: Tensor) -> Tensor:
    """[R, V'] float32 scratch memory: the floor for what is not finite, -inf for padding.

    A row never depends on the others.
    """
    num_rows, vocab_size = logits.shape
    padded = -(-vocab_size // CHUNK) * CHUNK
    values = scratch("scores", (num_rows, padded), torch.float32, logits.device)
    values[:, vocab_size:] = -torch.inf
    values[:, :vocab_size].copy_(logits)
    values.sub_(values.amax(-1, keepdim=True))
    values.sub_(tree_sum(weights(values)).log_()[:, None])
    values[:, :vocab_size].nan_to_num_(nan=FLOOR, neginf=FLOOR).clamp_(min=FLOOR, max=0.0)
    return values


def weights(scores: Tensor) -> Tensor:
    """e**score for scores <= 0, float32; from -80 down all alike, below anything that can matter.

    Unlike `mass.weights` its bits differ between CPUs: nobody compares log-probabilities. The
    result is scratch memory: the next call overwrites it. MKL's exp takes twelve times as
    long for elements that underflow, -inf among them, as for others.
    """
    result = scratch("weights", (scores.shape[0], scores.shape[1]), scores.dtype, scores.device)
    return torch.clamp(scores, min=_LOWEST, out=result).exp_()


def tree_sum(values: Tensor) -> Tensor:
    """Sum rows by halves: [R, n] -> [R]. Elementwise, so one row's sum never depends on others."""
    num_rows, count = values.shape
    if count == 1:
        return values[:, 0].clone()
    half = count // 2
    sums = scratch("sums", (num_rows, half), values.dtype, values.device)
    torch.add(values[:, :half], values[:, half : 2 * half], out=sums)
    if count % 2:
        sums[:, 0] += values[:, -1]
    while half > 1:
        count, half = half, half // 2
        sums[:, :half] += sums[:, half : 2 * half]
        if count % 2:
            sums[:, 0] += sums[:, count - 1]
    return sums[:, 0].clone()


def _tops(values: Tensor, count: int) -> list[tuple[tuple[int, float], ...]]:
    """Return the `count` largest entries of each row; equal ones by id."""
    if count == 0:
        return [()] * len(values)
    limits = Limits.of([RowParams()] * len(values), values.device, width=count)
    kept = truncate(*candidates(values, limits), limits)
    tops: list[list[tuple[int, float]]] = [[] for _ in values]
    for row, token, value in zip(
        kept.rows.tolist(), kept.token_ids.tolist(), kept.scores.tolist(), strict=True
    ):
        tops[row].append((token, value))
    return [tuple(top) for top in tops]
