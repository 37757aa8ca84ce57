"""Log-probabilities of emitted tokens under the raw target. Applies no parameter, draws nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from minedraft.model.truncation import exp, tree_sum
from minedraft.types import TokenLogprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

FLOOR: Final = -9999.0
"""Stands for minus infinity and for NaN, which JSON and clients cannot carry."""


def logprobs(
    logits: Tensor, token_ids: Sequence[int], counts: Sequence[int]
) -> list[TokenLogprobs]:
    """Log-probabilities of one token a row, and of each row's likeliest ones.

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
    values = _log_softmax(logits.float())
    chosen = values.gather(1, torch.tensor(token_ids, device=values.device)[:, None])[:, 0]
    return [
        TokenLogprobs(token, logprob, _top(row, count) if count > 0 else ())
        for token, logprob, row, count in zip(
            token_ids, chosen.tolist(), values, counts, strict=True
        )
    ]


def _log_softmax(scores: Tensor) -> Tensor:
    """[R, V] float32, the floor for what is not finite; a row never depends on the others."""
    shifted = scores - scores.amax(-1, keepdim=True)
    shifted -= tree_sum(exp(shifted)).log_()[:, None]
    return shifted.nan_to_num_(nan=FLOOR, neginf=FLOOR).clamp_(min=FLOOR, max=0.0)


def _top(values: Tensor, count: int) -> tuple[tuple[int, float], ...]:
    count = min(count, values.shape[0])
    last = values.topk(count).values[-1]
    ids = (values >= last).nonzero()[:, 0]  # ascending; more than count if the last has equals
    ranked = values[ids].sort(descending=True, stable=True)
    likeliest = ids[ranked.indices[:count]].tolist()
    return tuple(zip(likeliest, ranked.values[:count].tolist(), strict=True))
