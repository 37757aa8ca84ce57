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

from typing import TYPE_CHECKING, Final

import torch

from minedraft.errors import StateError
from minedraft.model import mass, noise, processors, truncation
from minedraft.model.draw_rows import BROKEN, UNDECIDED
from minedraft.model.gumbel_max import argmax, argmax_perturbed, candidates, draw_by_weight
from minedraft.model.kernel_draw import draw_by_kernel
from minedraft.model.logit_rows import mend, select, unsound
from minedraft.model.sampling_row import Position, SamplingRow
from minedraft.model.scratch import scratch
from minedraft.model.truncation import CHUNK, Entries, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from minedraft.model.draw_rows import DrawKernel

__all__ = ["BROKEN", "Position", "SamplingRow", "distributions", "draw", "draw_with_q"]

_CPU_BLOCK: Final = 1 << 20  # scores at once; fewer cost calls, more cost cache misses
_GPU_BLOCK: Final = 1 << 25


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
    _check(logits, positions)
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
    _check(logits, positions)
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
    entries = _truncated(logits, sampled, positions, width, broken)
    weights = mass.weights(entries.scores)
    sums = torch.stack([row.sum() for row in _split(entries.rows, weights, len(sampled))])
    probabilities = weights / sums[entries.rows]
    keys = _keys([positions[i] for i in sampled], logits.device)
    winners = draw_by_weight(entries.rows, entries.token_ids, probabilities.double(), keys)
    _scatter(tokens, sampled, winners)
    ids = _split(entries.rows, entries.token_ids, len(sampled))
    for i, row, row_ids in zip(
        sampled, _split(entries.rows, probabilities, len(sampled)), ids, strict=True
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
    _check(logits, positions)
    broken: set[int] = set()
    result: list[tuple[Tensor, Tensor]] = [(logits.new_empty(0), logits.new_empty(0))] * len(
        positions
    )
    cut = [i for i, p in enumerate(positions) if truncation.is_truncated(p.row.params)]
    if cut:
        entries = _truncated(logits, cut, positions, 0, broken)
        ids = _split(entries.rows, entries.token_ids, len(cut))
        scores = _split(entries.rows, entries.scores, len(cut))
        for i, row_ids, row in zip(cut, ids, scores, strict=True):
            weights = row.double().exp()
            result[i] = (row_ids, weights / weights.sum())
    whole = [i for i, p in enumerate(positions) if not truncation.is_truncated(p.row.params)]
    every_id = torch.arange(logits.shape[1], device=logits.device)
    for block in _blocks(whole, logits):
        for i, row in zip(block, _scores(logits, block, positions, broken), strict=True):
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
    for block in _blocks(greedy, logits):
        broken |= unsound(logits, block)
        scores = select(logits, block).float()
        scores = scores.clone() if scores.dtype == logits.dtype else scores
        processors.apply(scores, [positions[i] for i in block])
        _scatter(tokens, block, argmax(scores)[0])
    if sampled:
        chosen = [positions[i] for i in sampled]
        entries = _contenders(logits, sampled, positions, broken)
        _scatter(tokens, sampled, argmax_perturbed(entries, _keys(chosen, logits.device)))
    for i in broken:
        tokens[i] = BROKEN
    return tokens


def _contenders(
    logits: Tensor, indices: Sequence[int], positions: Sequence[Position], broken: set[int]
) -> Entries:
    """Entries among which every row's draw is; rows are numbered by place in `indices`."""
    cut = [n for n, i in enumerate(indices) if truncation.is_truncated(positions[i].row.params)]
    whole = [
        n for n, i in enumerate(indices) if not truncation.is_truncated(positions[i].row.params)
    ]
    parts: list[Entries] = []
    if cut:
        entries = _truncated(logits, [indices[n] for n in cut], positions, 0, broken)
        parts.append(_renumbered(entries, cut))
    for places in _blocks(whole, logits):
        block = [indices[n] for n in places]
        keys = _keys([positions[i] for i in block], logits.device)
        scores = _scores(logits, block, positions, broken)
        parts.append(_renumbered(candidates(scores, keys), places))
    return truncation.concatenate(parts)


def _truncated(
    logits: Tensor,
    indices: Sequence[int],
    positions: Sequence[Position],
    width: int,
    broken: set[int],
) -> Entries:
    """Return the tokens that truncation keeps, best first, by place of their row in `indices`."""
    params = [positions[i].row.params for i in indices]
    limits = Limits.of(params, logits.device, width)
    parts: list[Entries] = []
    totals: list[Tensor] = []
    done = 0
    for block in _blocks(indices, logits):
        scores = _scores(logits, block, positions, broken)
        found, total = truncation.candidates(scores, limits[done : done + len(block)])
        parts.append(found.moved(done))
        totals.append(total)
        done += len(block)
    return truncation.truncate(truncation.concatenate(parts), torch.cat(totals), limits)


def _scores(
    logits: Tensor, indices: Sequence[int], positions: Sequence[Position], broken: set[int]
) -> Tensor:
    """Return processed logits divided by temperature, relative to the row's best.

    Args:
        logits: [R, V].
        indices: Rows wanted.
        positions: R of them.
        broken: Takes the wanted rows that are no distribution; their scores mean nothing.

    Returns:
        [len(indices), V'] float32, V' the next multiple of CHUNK above V; padding is -inf. It is
        scratch memory: the next call overwrites it.
    """
    vocab_size = logits.shape[1]
    padded = -(-vocab_size // CHUNK) * CHUNK
    scores = scratch("scores", (len(indices), padded), torch.float32, logits.device)
    scores[:, vocab_size:] = -torch.inf
    scores[:, :vocab_size].copy_(select(logits, indices))
    chosen = [positions[i] for i in indices]
    processors.apply(scores[:, :vocab_size], chosen)
    temperatures = [p.row.params.temperature for p in chosen]
    if any(temperature != 1.0 for temperature in temperatures):
        scores.div_(scores.new_tensor(temperatures)[:, None])
    best = scores.amax(-1, keepdim=True)
    is_sound = torch.isfinite(best)[:, 0].tolist()
    # Parameters may have hidden what is wrong with a row, or made a sound one all -inf.
    doubtful = [
        i
        for i, p, ok in zip(indices, chosen, is_sound, strict=True)
        if p.row.has_processors or not ok
    ]
    if doubtful:
        broken |= unsound(logits, doubtful)
    if not all(is_sound):
        mend(scores[:, :vocab_size])
        best = scores.amax(-1, keepdim=True)
    return scores.sub_(best)


def _split(rows: Tensor, values: Tensor, num_rows: int) -> Sequence[Tensor]:
    """Cut [N] values by row; `rows` ascends."""
    return torch.split(values, torch.bincount(rows, minlength=num_rows).tolist())


def _renumbered(entries: Entries, numbers: Sequence[int]) -> Entries:
    rows = torch.tensor(numbers, device=entries.rows.device)[entries.rows]
    return Entries(rows, entries.token_ids, entries.scores, entries.masses)


def _blocks(indices: Sequence[int], logits: Tensor) -> Iterator[Sequence[int]]:
    size = _CPU_BLOCK if logits.device.type == "cpu" else _GPU_BLOCK
    rows = max(1, size // logits.shape[1])
    for start in range(0, len(indices), rows):
        yield indices[start : start + rows]


def _keys(positions: Sequence[Position], device: torch.device) -> Tensor:
    keys = [noise.row_key(p.row.params.seed, p.index) for p in positions]
    return noise.row_keys(keys, device)


def _is_plain(position: Position) -> bool:
    return position.row.params.is_greedy and not position.row.has_processors


def _scatter(tokens: list[int], indices: Sequence[int], values: Tensor) -> None:
    for i, value in zip(indices, values.tolist(), strict=True):
        tokens[i] = value


def _check(logits: Tensor, positions: Sequence[Position]) -> None:
    if logits.ndim != 2 or logits.shape[0] != len(positions):  # noqa: PLR2004 [R, V]
        raise StateError(f"logits of shape {tuple(logits.shape)} for {len(positions)} positions")
