"""Processed scores of rows of logits, and the tokens among which a draw is. Draws nothing.

A score is the processed logit over the temperature, relative to the row's best: log p without its
normaliser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from minedraft.errors import StateError
from minedraft.model import mass, noise, processors, truncation
from minedraft.model.gumbel_max import candidates
from minedraft.model.logit_rows import mend, select, unsound
from minedraft.model.scratch import scratch
from minedraft.model.truncation import CHUNK, Entries, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from minedraft.model.sampling_row import Position

_CPU_BLOCK: Final = 1 << 20  # scores at once; fewer cost calls, more cost cache misses
_GPU_BLOCK: Final = 1 << 25


def check(logits: Tensor, positions: Sequence[Position]) -> None:
    """Refuse logits that are not one row per position, by a StateError."""
    if logits.ndim != 2 or logits.shape[0] != len(positions):  # noqa: PLR2004 [R, V]
        raise StateError(f"logits of shape {tuple(logits.shape)} for {len(positions)} positions")


def contenders(
    logits: Tensor,
    indices: Sequence[int],
    positions: Sequence[Position],
    broken: set[int],
    *,
    reach: float = 0.0,
    kept: Tensor | None = None,
) -> Entries:
    """Find tokens among which every row's draw is.

    Args:
        logits: [R, V].
        indices: Rows wanted; not greedy.
        positions: R of them.
        broken: Takes the wanted rows that are no distribution.
        reach: The second-best perturbed score is among them too, if it is so close to the best.
        kept: [len(indices)] int64, takes the mass of all tokens that truncation keeps.

    Returns:
        Entries, whose rows are numbered by place in `indices`.
    """
    cut = [n for n, i in enumerate(indices) if truncation.is_truncated(positions[i].row.params)]
    whole = [
        n for n, i in enumerate(indices) if not truncation.is_truncated(positions[i].row.params)
    ]
    parts: list[Entries] = []
    if cut:
        entries = truncated(logits, [indices[n] for n in cut], positions, 0, broken)
        parts.append(_renumbered(entries, cut))
        if kept is not None:
            kept.index_add_(0, parts[-1].rows, mass.masses(entries.scores))
    for places in blocks(whole, logits):
        block = [indices[n] for n in places]
        keys = keys_of([positions[i] for i in block], logits.device)
        scores = processed(logits, block, positions, broken)
        parts.append(_renumbered(candidates(scores, keys, reach), places))
        if kept is not None:
            kept[torch.tensor(places, device=kept.device)] = mass.totals(scores)
    return truncation.concatenate(parts)


def truncated(
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
    for block in blocks(indices, logits):
        scores = processed(logits, block, positions, broken)
        found, total = truncation.candidates(scores, limits[done : done + len(block)])
        parts.append(found.moved(done))
        totals.append(total)
        done += len(block)
    return truncation.truncate(truncation.concatenate(parts), torch.cat(totals), limits)


def processed(
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


def split(rows: Tensor, values: Tensor, num_rows: int) -> Sequence[Tensor]:
    """Cut [N] values by row; `rows` ascends."""
    return torch.split(values, torch.bincount(rows, minlength=num_rows).tolist())


def _renumbered(entries: Entries, numbers: Sequence[int]) -> Entries:
    rows = torch.tensor(numbers, device=entries.rows.device)[entries.rows]
    return Entries(rows, entries.token_ids, entries.scores, entries.masses)


def blocks(indices: Sequence[int], logits: Tensor) -> Iterator[Sequence[int]]:
    """Cut rows into as many at a time as are worth one call."""
    size = _CPU_BLOCK if logits.device.type == "cpu" else _GPU_BLOCK
    rows = max(1, size // logits.shape[1])
    for start in range(0, len(indices), rows):
        yield indices[start : start + rows]


def keys_of(positions: Sequence[Position], device: torch.device) -> Tensor:
    """[R] int64: of the noise that drafter and verifier share at each position."""
    keys = [noise.row_key(p.row.params.seed, p.index) for p in positions]
    return noise.row_keys(keys, device)
