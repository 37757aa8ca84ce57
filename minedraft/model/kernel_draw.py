"""Draws by a maker's kernel, processors included. What the kernel leaves undecided stays so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from minedraft.model import processors
from minedraft.model.draw_rows import BROKEN, UNDECIDED, DrawRows
from minedraft.model.logit_rows import select, unsound
from minedraft.model.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.model.draw_rows import DrawKernel
    from minedraft.model.sampling_row import Position


def draw_by_kernel(logits: Tensor, positions: Sequence[Position], kernel: DrawKernel) -> list[int]:
    """Draw one token at every position.

    Args:
        logits: [R, V] of any float type; not modified.
        positions: R of them, at least one.
        kernel: Of `logits`' device.

    Returns:
        R token ids, `BROKEN`, or `UNDECIDED` where torch must draw.
    """
    plain = [i for i, p in enumerate(positions) if not p.row.has_processors]
    if len(plain) == len(positions):
        return kernel(logits, DrawRows.of(plain, positions, logits.device)).tolist()
    tokens = [UNDECIDED] * len(positions)
    if plain:
        rows = DrawRows.of(plain, [positions[i] for i in plain], logits.device)
        for i, token in zip(plain, kernel(logits, rows).tolist(), strict=True):
            tokens[i] = token
    others = [i for i, p in enumerate(positions) if p.row.has_processors]
    chosen = [positions[i] for i in others]
    shape = len(others), logits.shape[1]
    scores = scratch("scores", shape, torch.float32, logits.device).copy_(select(logits, others))
    processors.apply(scores, chosen)
    drawn = kernel(scores, DrawRows.of(range(len(others)), chosen, logits.device)).tolist()
    # Parameters may have hidden what is wrong with a row, or made a sound one all -inf.
    broken = unsound(logits, others)
    for i, token in zip(others, drawn, strict=True):
        tokens[i] = BROKEN if i in broken else UNDECIDED if token == BROKEN else token
    return tokens
