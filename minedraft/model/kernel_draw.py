"""Draws by a maker's kernel, processors included. What the kernel leaves undecided stays so."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

from minedraft.model import processors
from minedraft.model.draw_rows import BROKEN, UNDECIDED, DrawRows
from minedraft.model.logit_rows import select, unsound
from minedraft.model.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from minedraft.model.draw_rows import DrawKernel
    from minedraft.model.sampling_row import Position

_T = TypeVar("_T")


def draw_by_kernel(logits: Tensor, positions: Sequence[Position], kernel: DrawKernel) -> list[int]:
    """Draw one token at every position.

    Args:
        logits: [R, V] of any float type; not modified.
        positions: R of them, at least one.
        kernel: Of `logits`' device.

    Returns:
        R token ids, `BROKEN`, or `UNDECIDED` where torch must draw.
    """

    def call(some: Tensor, rows: DrawRows) -> tuple[list[int], Sequence[float]]:
        return kernel(some, rows).tolist(), ()

    return _drawn(logits, positions, call)[0]


def draw_scored_by_kernel(
    logits: Tensor, positions: Sequence[Position], kernel: DrawKernel, *, is_surprisal: bool
) -> tuple[list[int], Sequence[float]]:
    """Draw the same tokens, and a score of each: see `scored_draw`.

    Returns:
        As above, and R scores, which mean nothing where torch must draw.
    """

    def call(some: Tensor, rows: DrawRows) -> tuple[list[int], Sequence[float]]:
        tokens, scores = kernel.scored(some, rows, is_surprisal=is_surprisal)
        return tokens.tolist(), scores.tolist()

    return _drawn(logits, positions, call)


def _drawn(
    logits: Tensor,
    positions: Sequence[Position],
    call: Callable[[Tensor, DrawRows], tuple[list[int], Sequence[float]]],
) -> tuple[list[int], Sequence[float]]:
    """Return tokens, and scores if `call` returns any."""
    plain = [i for i, p in enumerate(positions) if not p.row.has_processors]
    if len(plain) == len(positions):
        return call(logits, DrawRows.of(plain, positions, logits.device))
    tokens = [UNDECIDED] * len(positions)
    scores = [0.0] * len(positions)
    if plain:
        rows = DrawRows.of(plain, [positions[i] for i in plain], logits.device)
        drawn, some = call(logits, rows)
        _scatter(tokens, plain, drawn)
        _scatter(scores, plain, some)
    others = [i for i, p in enumerate(positions) if p.row.has_processors]
    chosen = [positions[i] for i in others]
    shape = len(others), logits.shape[1]
    processed = scratch("scores", shape, torch.float32, logits.device)
    processors.apply(processed.copy_(select(logits, others)), chosen)
    drawn, some = call(processed, DrawRows.of(range(len(others)), chosen, logits.device))
    _scatter(scores, others, some)
    # Parameters may have hidden what is wrong with a row, or made a sound one all -inf.
    broken = unsound(logits, others)
    for i, token in zip(others, drawn, strict=True):
        tokens[i] = BROKEN if i in broken else UNDECIDED if token == BROKEN else token
        if tokens[i] == BROKEN:
            scores[i] = 0.0
    return tokens, scores


def _scatter(into: list[_T], indices: Sequence[int], values: Sequence[_T]) -> None:
    for i, value in zip(indices, values, strict=False):  # there may be no scores
        into[i] = value
