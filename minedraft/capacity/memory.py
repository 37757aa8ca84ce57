"""What a layout needs of its devices' memory. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.capacity.model_shape import BF16

if TYPE_CHECKING:
    from minedraft.capacity.layout import Layout
    from minedraft.capacity.model_shape import ModelShape
    from minedraft.capacity.question import Question

USABLE: Final = 0.9
"""Share of a device's memory that is planned with; the rest is the driver's and fragmentation."""
WORKSPACE: Final = 1e9
"""Bytes beside weights, KV and activations: libraries, communicators."""
_BLOCK: Final = 16
_MOST_FED: Final = 512
"""Least prompt tokens beside a step's own that activations are counted for."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the fullest device of each kind, and what may be used of it."""

    target: float
    target_usable: float
    draft: float = 0.0
    """0: no device drafts."""
    draft_usable: float = 0.0

    @property
    def missing(self) -> float:
        """Bytes that the worse of the two lacks; 0: it fits."""
        return max(self.target - self.target_usable, self.draft - self.draft_usable, 0.0)


def memory(layout: Layout, question: Question, batch_size: int) -> Memory:
    """Sum up the memory of the fullest devices.

    Args:
        layout: Who has what.
        question: Models and context.
        batch_size: Requests per batch (m).
    """
    target, places = question.target, question.num_places + layout.k + 1
    num_rows = layout.num_batches * batch_size
    per_row = math.ceil(places / _BLOCK) * _BLOCK
    tokens = batch_size * (layout.k + 1) + _MOST_FED
    needed = (
        target.held_bytes / layout.tp
        + num_rows * per_row * target.kv_bytes / layout.tp
        + _activations(target, tokens, layout.tp)
        + WORKSPACE
    )
    usable = layout.device.memory * USABLE
    drafter = layout.drafter
    if drafter is None:
        return Memory(needed, usable)
    busiest = math.ceil(layout.num_batches / max(layout.num_drafters, 1)) * batch_size
    draft = (
        drafter.shape.held_bytes
        + busiest * per_row * drafter.shape.kv_bytes
        + _activations(drafter.shape, 2 * batch_size + _MOST_FED, 1)
    )
    if layout.draft_device is None:
        return Memory(needed + draft, usable)
    return Memory(needed, usable, draft + WORKSPACE, layout.draft_device.memory * USABLE)


def _activations(shape: ModelShape, num_tokens: int, tp: int) -> float:
    """Values of the widest layer, and fp32 logits."""
    layer = num_tokens * (4 * shape.hidden + 2 * shape.intermediate / tp) * BF16
    return layer + num_tokens * shape.vocab * 4
