"""Log-probabilities of emitted tokens under the raw target. Ignores sampling parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from minedraft.model import mass
from minedraft.model.scratch import scratch
from minedraft.model.truncation import CHUNK, Limits, candidates, truncate
from minedraft.types import RowParams, TokenLogprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

FLOOR: Final = -9999.0
"""Stands for minus infinity and for NaN, which JSON and clients cannot carry."""


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
    sums = mass.totals(values).double().div_(mass.MASS_SCALE)
    values.sub_(sums.log_().float()[:, None])
    values[:, :vocab_size].nan_to_num_(nan=FLOOR, neginf=FLOOR).clamp_(min=FLOOR, max=0.0)
    return values


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
