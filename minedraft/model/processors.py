"""Applies parameters that change logits by token id and history. Knows no randomness.

One order, for every row on every worker:

1. repetition penalty (prompt and output), frequency and presence penalties (output), 2. logit_bias,
3. min_tokens, 4. bad_words, 5. allowed_token_ids (this file); then temperature (`sampling`),
top-k, top-p, min-p (`truncation`). Draft tokens before a position count as output there.

If the masks 3 to 5 leave no token, the allow-list wins: masks 3 and 4 are lifted at that position,
so that a token outside the list never appears. Ids outside the vocabulary are ignored; an
allow-list of nothing else is no list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from minedraft.model.sampling_row import Position, SamplingRow
    from minedraft.types import RowParams


def apply(logits: Tensor, positions: Sequence[Position]) -> None:
    """Apply the processors of each position to its row of logits.

    Args:
        logits: [R, V] float32; changed in place where a row has processors.
        positions: R of them.
    """
    for scores, position in zip(logits, positions, strict=True):
        if position.row.has_processors:
            _apply_row(scores, position.row, position.draft_prefix)


def _apply_row(scores: Tensor, row: SamplingRow, prefix: Sequence[int]) -> None:
    params = row.params
    vocab_size = scores.shape[0]
    if row.has_penalties:
        _penalise(scores, row, prefix)
    if params.logit_bias:
        biases = {t: bias for t, bias in params.logit_bias.items() if 0 <= t < vocab_size}
        scores[_ids(biases, scores)] += scores.new_tensor(list(biases.values()))
    masked = {t for t in _masked(row, prefix) if 0 <= t < vocab_size}
    allowed = {t for t in params.allowed_token_ids if 0 <= t < vocab_size}
    if allowed:
        _allow_only(scores, (allowed - masked) or allowed)
    elif masked and len(masked) < vocab_size:
        scores[_ids(masked, scores)] = -torch.inf


def _penalise(scores: Tensor, row: SamplingRow, prefix: Sequence[int]) -> None:
    ids, counts = row.penalised(scores.device)
    drafted = list(dict.fromkeys(prefix))
    drafted_ids = _ids(drafted, scores)
    raw = scores[drafted_ids]  # a copy, from before the committed history is applied
    scores[ids] = _penalty(scores[ids], counts, row.params)
    if drafted:  # overwrite: their counts include the prefix
        totals = scores.new_tensor([row.output_count(t) + prefix.count(t) for t in drafted])
        scores[drafted_ids] = _penalty(raw, totals, row.params)


def _penalty(scores: Tensor, counts: Tensor, params: RowParams) -> Tensor:
    repetition = params.repetition_penalty
    if repetition != 1.0:
        scores = torch.where(scores > 0, scores / repetition, scores * repetition)
    scores = scores - counts * params.frequency_penalty
    return scores - (counts > 0) * params.presence_penalty


def _masked(row: SamplingRow, prefix: Sequence[int]) -> set[int]:
    """Return the tokens that min_tokens and bad_words forbid here."""
    params = row.params
    masked: set[int] = set()
    if len(row.output_token_ids) + len(prefix) < params.min_tokens:
        masked.update(params.stop_ids)
    if params.bad_words:
        longest = max(len(word) for word in params.bad_words)
        tail = (*row.output_token_ids[-longest:], *prefix)
        for word in params.bad_words:
            if word and len(word) - 1 <= len(tail) and word[:-1] == _last(tail, len(word) - 1):
                masked.add(word[-1])
    return masked


def _last(tokens: tuple[int, ...], count: int) -> tuple[int, ...]:
    return tokens[len(tokens) - count :]


def _allow_only(scores: Tensor, allowed: set[int]) -> None:
    ids = _ids(sorted(allowed), scores)
    kept = scores[ids]
    if not bool((kept > -torch.inf).any()):  # the model itself rules them all out
        kept = torch.zeros_like(kept)
    scores.fill_(-torch.inf)
    scores[ids] = kept


def _ids(ids: Iterable[int], like: Tensor) -> Tensor:
    return torch.tensor(list(ids), dtype=torch.int64, device=like.device)
