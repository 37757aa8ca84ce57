"""Draws tokens, in the same way for drafter and verifier. Decides no acceptance.

A draw is argmax(log p + Gumbel noise) over what truncation keeps of the processed distribution p:
an exact sample of p that depends on logits, history, parameters, seed and absolute position, and
on nothing else in the batch (Daliri, Musco, Suresh 2024 call sharing the noise "coupling without
communication"). log p needs no normaliser: scores relative to the row's best do.

Greedy rows take the likeliest token, equal logits by lowest id. A row of logits with NaN or +inf,
or without any number, is no distribution: no token comes of it, but `BROKEN`. Minus infinity that
parameters make (bans, an allow-list) is none of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from minedraft.model import mass, processors, truncation
from minedraft.model.contenders import (
    blocks,
    check,
    contenders,
    keys_of,
    processed,
    split,
    truncated,
)
from minedraft.model.draw_rows import BROKEN, UNDECIDED
from minedraft.model.gumbel_max import argmax, argmax_perturbed, draw_by_weight
from minedraft.model.kernel_draw import draw_by_kernel
from minedraft.model.logit_rows import select, unsound
from minedraft.model.sampling_row import Position, SamplingRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.model.draw_rows import DrawKernel

__all__ = ["BROKEN", "Position", "SamplingRow", "distributions", "draw", "draw_with_q"]


def draw(
    logits: Tensor, positions: Sequence[Position], kernel: DrawKernel | None = None
) -> list[int]:
    """Draw one token at every position.

    Args:
        logits: [R, V] of any float type; not modified.
        positions: R of them; parameters may differ from row to row.
        kernel: Draws the same tokens faster; None: torch alone.

    Returns:
        R token ids, or `BROKEN`.

    Raises:
        StateError: The number of rows and of positions differ.
    """
    check(logits, positions)
    if kernel is None or not positions:
        return _draw_in_torch(logits, positions)
    tokens = draw_by_kernel(logits, positions, kernel)
    rest = [i for i, token in enumerate(tokens) if token == UNDECIDED]
    if rest:
        exact = _draw_in_torch(select(logits, rest), [positions[i] for i in rest])
        for i, token in zip(rest, exact, strict=True):
            tokens[i] = token
    return tokens


def draw_with_q(
    logits: Tensor, positions: Sequence[Position], width: int, kernel: DrawKernel | None = None
) -> tuple[list[int], list[tuple[tuple[int, ...], tuple[float, ...]]]]:
    """Draw from a distribution small enough to send along, for acceptance by rejection.

    Args:
        logits: [R, V] of any float type; not modified.
        positions: R of them.
        width: Most tokens in a distribution; > 0.
        kernel: As for `draw`; for greedy rows.

    Returns:
        R token ids or `BROKEN`, and for each token the (ids, probabilities) it was drawn from: the
        processed distribution cut to its `width` likeliest and renormalised in float32. A greedy
        row's is its token with probability 1.
    """
    check(logits, positions)
    tokens = [0] * len(positions)
    q: list[tuple[tuple[int, ...], tuple[float, ...]]] = [((), ())] * len(positions)
    greedy = [i for i, p in enumerate(positions) if p.row.params.is_greedy]
    if greedy:
        drawn = draw(select(logits, greedy), [positions[i] for i in greedy], kernel)
        for i, token in zip(greedy, drawn, strict=True):
            tokens[i], q[i] = token, ((token,), (1.0,))
    sampled = [i for i, p in enumerate(positions) if not p.row.params.is_greedy]
    if not sampled:
        return tokens, q
    broken: set[int] = set()
    entries = truncated(logits, sampled, positions, width, broken)
    weights = mass.weights(entries.scores)
    sums = torch.stack([row.sum() for row in split(entries.rows, weights, len(sampled))])
    probabilities = weights / sums[entries.rows]
    keys = keys_of([positions[i] for i in sampled], logits.device)
    winners = draw_by_weight(entries.rows, entries.token_ids, probabilities.double(), keys)
    _scatter(tokens, sampled, winners)
    ids = split(entries.rows, entries.token_ids, len(sampled))
    for i, row, row_ids in zip(
        sampled, split(entries.rows, probabilities, len(sampled)), ids, strict=True
    ):
        q[i] = (tuple(row_ids.tolist()), tuple(row.tolist()))
    for i in broken:
        tokens[i] = BROKEN
    return tokens, q


def distributions(logits: Tensor, positions: Sequence[Position]) -> list[tuple[Tensor, Tensor]]:
    """Return the processed distribution at every position. No row may be greedy.

    Args:
        logits: [R, V] of any float type; not modified.
        positions: R of them.

    Returns:
        R pairs of [n] int64 distinct ids and [n] float64 probabilities, all tokens that can be
        drawn and perhaps some of probability 0; n = 0 where the logits are no distribution.
    """
    check(logits, positions)
    broken: set[int] = set()
    result: list[tuple[Tensor, Tensor]] = [(logits.new_empty(0), logits.new_empty(0))] * len(
        positions
    )
    cut = [i for i, p in enumerate(positions) if truncation.is_truncated(p.row.params)]
    if cut:
        entries = truncated(logits, cut, positions, 0, broken)
        ids = split(entries.rows, entries.token_ids, len(cut))
        scores = split(entries.rows, entries.scores, len(cut))
        for i, row_ids, row in zip(cut, ids, scores, strict=True):
            weights = row.double().exp()
            result[i] = (row_ids, weights / weights.sum())
    whole = [i for i, p in enumerate(positions) if not truncation.is_truncated(p.row.params)]
    every_id = torch.arange(logits.shape[1], device=logits.device)
    for block in blocks(whole, logits):
        for i, row in zip(block, processed(logits, block, positions, broken), strict=True):
            weights = row[: logits.shape[1]].double().exp()
            result[i] = (every_id, weights / weights.sum())
    for i in broken:
        result[i] = (every_id[:0], logits.new_empty(0, dtype=torch.float64))
    return result


def _draw_in_torch(logits: Tensor, positions: Sequence[Position]) -> list[int]:
    tokens = [0] * len(positions)
    broken: set[int] = set()
    plain = [i for i, p in enumerate(positions) if _is_plain(p)]
    greedy = [i for i, p in enumerate(positions) if p.row.params.is_greedy and not _is_plain(p)]
    sampled = [i for i, p in enumerate(positions) if not p.row.params.is_greedy]
    if plain:
        best, values = argmax(select(logits, plain))
        _scatter(tokens, plain, torch.where(values.isfinite(), best, BROKEN))
    for block in blocks(greedy, logits):
        broken |= unsound(logits, block)
        scores = select(logits, block).float()
        scores = scores.clone() if scores.dtype == logits.dtype else scores
        processors.apply(scores, [positions[i] for i in block])
        _scatter(tokens, block, argmax(scores)[0])
    if sampled:
        chosen = [positions[i] for i in sampled]
        entries = contenders(logits, sampled, positions, broken)
        _scatter(tokens, sampled, argmax_perturbed(entries, keys_of(chosen, logits.device)))
    for i in broken:
        tokens[i] = BROKEN
    return tokens


def _is_plain(position: Position) -> bool:
    return position.row.params.is_greedy and not position.row.has_processors


def _scatter(tokens: list[int], indices: Sequence[int], values: Tensor) -> None:
    for i, value in zip(indices, values.tolist(), strict=True):
        tokens[i] = value
