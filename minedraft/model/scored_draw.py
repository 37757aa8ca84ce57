"""Draws the tokens of `sampling.draw`, and says of each how sure it was. Decides no acceptance.

A *margin* is the best perturbed score less the second best, in 0..4 nats: how far two models may
differ before the shared noise gives another token. Greedy: the same of processed logits. A
*surprisal* is -log q of the token under what truncation keeps. At temperature 0 that would be 0
always, so a greedy row's is of the softmax of its processed logits.

Every score is finite, >= 0, and a function of the row alone. Both makers have the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from minedraft.model import mass, noise, processors
from minedraft.model.contenders import blocks, check, contenders, keys_of
from minedraft.model.draw_rows import BROKEN, UNDECIDED
from minedraft.model.gumbel_max import two_largest, two_largest_perturbed
from minedraft.model.kernel_draw import draw_scored_by_kernel
from minedraft.model.logit_rows import select, unsound
from minedraft.types import MAX_MARGIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.model.draw_rows import DrawKernel
    from minedraft.model.sampling_row import Position
    from minedraft.model.truncation import Entries


def draw_scored(
    logits: Tensor,
    positions: Sequence[Position],
    kernel: DrawKernel | None = None,
    *,
    is_surprisal: bool = False,
) -> tuple[list[int], list[float]]:
    """Draw one token at every position, and score it.

    Args:
        logits: [R, V] of any float type; not modified.
        positions: R of them; parameters may differ from row to row.
        kernel: Draws the same faster; None: torch alone.
        is_surprisal: Whether scores are surprisals, not margins.

    Returns:
        R token ids or `BROKEN`, as of `draw`, and R scores, 0 beside `BROKEN`.

    Raises:
        StateError: The number of rows and of positions differ.
    """
    check(logits, positions)
    if kernel is None or not positions:
        return _in_torch(logits, positions, is_surprisal=is_surprisal)
    tokens, some = draw_scored_by_kernel(logits, positions, kernel, is_surprisal=is_surprisal)
    scores = list(some)
    rest = [i for i, token in enumerate(tokens) if token == UNDECIDED]
    if rest:
        chosen = [positions[i] for i in rest]
        exact = _in_torch(select(logits, rest), chosen, is_surprisal=is_surprisal)
        for i, token, score in zip(rest, *exact, strict=True):
            tokens[i], scores[i] = token, score
    return tokens, scores


def _in_torch(
    logits: Tensor, positions: Sequence[Position], *, is_surprisal: bool
) -> tuple[list[int], list[float]]:
    tokens = [0] * len(positions)
    scores = [0.0] * len(positions)
    broken: set[int] = set()
    greedy = [i for i, p in enumerate(positions) if p.row.params.is_greedy]
    sampled = [i for i, p in enumerate(positions) if not p.row.params.is_greedy]
    for block in blocks(greedy, logits):
        values = select(logits, block)
        others = [i for i in block if positions[i].row.has_processors]
        if others:  # they may hide what is wrong with a row
            broken |= unsound(logits, others)
            values = values.to(torch.float32, copy=True)
            processors.apply(values, [positions[i] for i in block])
        best, largest, second = two_largest(values)
        found = _margins(largest, second)
        if is_surprisal:
            relative = values.float() - largest[:, None]
            found = _surprisals(mass.totals(relative), torch.zeros_like(largest))
        is_sound = largest.isfinite()
        _scatter(tokens, scores, block, best, found.where(is_sound, 0.0))
        for i, is_fine in zip(block, is_sound.tolist(), strict=True):
            if not is_fine and i not in others:
                broken.add(i)
    if sampled:
        keys = keys_of([positions[i] for i in sampled], logits.device)
        kept = None
        if is_surprisal:
            kept = torch.zeros(len(sampled), dtype=torch.int64, device=logits.device)
        reach = 0.0 if is_surprisal else MAX_MARGIN
        entries = contenders(logits, sampled, positions, broken, reach=reach, kept=kept)
        drawn, first, second = two_largest_perturbed(entries, keys)
        found = _margins(first, second)
        if kept is not None:
            found = _surprisals(kept, _scores_of(entries, drawn))
        _scatter(tokens, scores, sampled, drawn, found)
    for i in broken:
        tokens[i], scores[i] = BROKEN, 0.0
    return tokens, scores


def _margins(best: Tensor, second: Tensor) -> Tensor:
    return (best - second).clamp_(max=MAX_MARGIN).float()


def _surprisals(kept: Tensor, scores: Tensor) -> Tensor:
    """From the mass that truncation keeps, int64, and the score of the token."""
    return noise.log(kept.double() / mass.MASS_SCALE).sub_(scores.double()).clamp_(min=0.0).float()


def _scores_of(entries: Entries, drawn: Tensor) -> Tensor:
    """Return the score of each row's token: [R] float32."""
    is_drawn = entries.token_ids == drawn[entries.rows]
    scores = torch.zeros(len(drawn), device=drawn.device)
    scores[entries.rows[is_drawn]] = entries.scores[is_drawn]
    return scores


def _scatter(
    tokens: list[int], scores: list[float], indices: Sequence[int], drawn: Tensor, found: Tensor
) -> None:
    for i, token, score in zip(indices, drawn.tolist(), found.tolist(), strict=True):
        tokens[i], scores[i] = token, score
