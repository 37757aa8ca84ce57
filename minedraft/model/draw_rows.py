"""What a draw needs to know of its positions, as one table of tensors. Draws nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.model.sampling_row import Position

BROKEN: Final = -1
"""Placeholder for a token where the model's logits are no distribution."""
UNDECIDED: Final = -2
"""A kernel's word for a row that it leaves to the exact path of `sampling`."""


@dataclass(frozen=True, slots=True)
class DrawRows:
    """Positions to draw at: [R] each, contiguous, on one device. Processors are not among it."""

    places: Tensor
    """int64: the row of logits."""
    seeds: Tensor
    """int64, the bits of an unsigned number."""
    positions: Tensor
    """int64: absolute position of the token."""
    temperatures: Tensor
    """float32; 0: greedy."""
    top_k: Tensor
    """int64; 0: off."""
    top_p: Tensor
    """float64; 1: off."""
    log_min_p: Tensor
    """float32; -inf: off."""

    @classmethod
    def of(
        cls, places: Sequence[int], positions: Sequence[Position], device: torch.device
    ) -> DrawRows:
        """Make the table.

        Args:
            places: The row of logits of each position.
            positions: At least one.
            device: Where to.
        """
        seeds, temperatures, top_k, top_p, log_min_p = zip(
            *[p.row.draw_params for p in positions], strict=True
        )
        return cls(
            places=torch.tensor(places, dtype=torch.int64, device=device),
            seeds=torch.tensor(seeds, dtype=torch.int64, device=device),
            positions=torch.tensor([p.index for p in positions], dtype=torch.int64, device=device),
            temperatures=torch.tensor(temperatures, dtype=torch.float32, device=device),
            top_k=torch.tensor(top_k, dtype=torch.int64, device=device),
            top_p=torch.tensor(top_p, dtype=torch.float64, device=device),
            log_min_p=torch.tensor(log_min_p, dtype=torch.float32, device=device),
        )

    def __len__(self) -> int:
        return len(self.places)


class DrawKernel(Protocol):
    """Draws one token per row: a function of each row alone, the same on every maker."""

    def __call__(self, logits: Tensor, rows: DrawRows) -> Tensor:
        """Draw.

        Args:
            logits: [N, V] of any float type; not modified.
            rows: R of them.

        Returns:
            [R] int64: ids, `BROKEN` or `UNDECIDED`.
        """

    def scored(
        self, logits: Tensor, rows: DrawRows, *, is_surprisal: bool
    ) -> tuple[Tensor, Tensor]:
        """Draw the same tokens, and say of each what `scored_draw` does.

        Returns:
            As above, and [R] float32; 0 where there is no token.
        """
