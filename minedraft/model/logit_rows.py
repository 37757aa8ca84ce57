"""Some rows of a matrix of logits, and which of them are no distribution. Knows no parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def select(logits: Tensor, indices: Sequence[int]) -> Tensor:
    """Take rows of logits: a view if they are consecutive.

    Args:
        logits: [R, V].
        indices: At least one, rising.
    """
    first, count = indices[0], len(indices)
    if indices[-1] - first == count - 1:
        return logits[first : first + count]
    return logits[torch.tensor(indices, device=logits.device)]


def unsound(logits: Tensor, indices: Sequence[int]) -> set[int]:
    """Tell which rows have NaN or +inf, or no finite number."""
    best = select(logits, indices).amax(-1)  # NaN, if there is any
    return {i for i, ok in zip(indices, best.isfinite().tolist(), strict=True) if not ok}


def mend(scores: Tensor) -> None:
    """Replace rows without a finite best, in place; sound rows keep their values."""
    scores.nan_to_num_(nan=-torch.inf, posinf=torch.finfo(scores.dtype).max, neginf=-torch.inf)
    hopeless = (scores == -torch.inf).all(-1, keepdim=True)
    scores.masked_fill_(hopeless, 0.0)
