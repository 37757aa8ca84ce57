"""Finds the rows of a forward pass that have no finite numbers. Repairs nothing.

A token whose embedding is NaN, or whose activations overflow, is NaN in every later layer: in the
keys and values of the last one, and, for rows whose logits are wanted, in what the head is given.
So these few tensors tell of all layers, at the cost of three small sums a step. What the head
itself makes of finite numbers is looked at where tokens are drawn (`sampling`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from minedraft.model.batch import RowInput


class Witness:
    """Looks at one forward pass. Use `look` as the pre-forward hook of the head."""

    def __init__(self) -> None:
        self._hidden: Tensor | None = None

    def look(self, _head: nn.Module, args: tuple[Tensor, ...]) -> None:
        """Record the input of the head: [1, sum(num_logits), hidden]."""
        self._hidden = args[0]

    def is_sound(self, last: Sequence[Tensor]) -> bool:
        """Whether the whole input is finite.

        Args:
            last: What holds the keys and values of the last layer, [T, ...] each.
        """
        looked_at = last if self._hidden is None else (*last, self._hidden)
        total = sum(float(x.sum()) for x in looked_at)
        # A sum of finite numbers may overflow: then the rows are looked at for nothing.
        return math.isfinite(total)

    def unsound_rows(self, rows: Sequence[RowInput], last: Sequence[Tensor]) -> list[int]:
        """Indices of the rows in which something is not finite, rising.

        Args:
            rows: Of the pass.
            last: As in `is_sound`.
        """
        tokens = torch.stack([x.flatten(1).isfinite().all(-1) for x in last]).all(0).tolist()  # [T]
        unsound = set()
        at = 0
        for index, row in enumerate(rows):
            length = len(row.token_ids)
            if not all(tokens[at : at + length]):
                unsound.add(index)
            at += length
        if self._hidden is not None:
            hidden = self._hidden.flatten(0, -2).isfinite().all(-1).tolist()
            at = 0
            for index, row in enumerate(rows):
                if not all(hidden[at : at + row.num_logits]):
                    unsound.add(index)
                at += row.num_logits
        return sorted(unsound)
