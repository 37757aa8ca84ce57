"""The plan of one forward pass as tensors: tokens, positions, slots, block tables.

Refuses to touch keys, values or the model. Rows are packed in the caller's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from minedraft.model.batch import RowInput


@dataclass(frozen=True, slots=True)
class StepMeta:
    """The input of a forward pass beside the weights. All tensors are on the model's device."""

    input_ids: Tensor
    """[1, T] int64, all rows packed in order."""
    position_ids: Tensor
    """[1, T] int64."""
    cu_seqlens: Tensor
    """[m + 1] int32: first packed token of each row, and T."""
    starts: Tensor
    """[m] int32: position of each row's first token."""
    table: Tensor
    """[m, width] int32: blocks of each row up to its last position, padded with its last block."""
    slots: Tensor
    """[T] int32: block * block_size + offset of each token."""
    logits_rows: Tensor
    """[R] int64, packed tokens whose logits are wanted."""


def plan_step(rows: Sequence[RowInput], *, block_size: int, device: torch.device) -> StepMeta:
    """Pack rows.

    Args:
        rows: Checked rows (`minedraft.model.batch.check_rows`).
        block_size: Positions a block holds.
        device: Where the tensors go.
    """
    m = len(rows)
    lengths = np.fromiter((len(row.token_ids) for row in rows), np.int64, m)
    starts = np.fromiter((row.start for row in rows), np.int64, m)
    logits = np.fromiter((row.num_logits for row in rows), np.int64, m)
    ends = np.cumsum(lengths)
    T, used = int(ends[-1]), -(-(starts + lengths) // block_size)
    width = int(used.max())

    wide = np.empty((2, T), np.int64)
    tokens, positions = wide
    tokens[:] = np.fromiter(chain.from_iterable(row.token_ids for row in rows), np.int64, T)
    positions[:] = np.arange(T) + np.repeat(starts - ends + lengths, lengths)
    # One copy to a device: cu_seqlens, starts, slots, table.
    narrow = np.zeros(2 * m + 1 + T + m * width, np.int32)
    bounds = np.cumsum([m + 1, m, T])
    narrow[1 : m + 1] = ends
    narrow[m + 1 : 2 * m + 1] = starts
    table = narrow[bounds[2] :].reshape(m, width)
    for row, count, into in zip(rows, used.tolist(), table, strict=True):
        into[:count] = row.block_ids[:count]
        into[count:] = into[count - 1]
    blocks = table[np.repeat(np.arange(m), lengths), positions // block_size]
    narrow[bounds[1] : bounds[2]] = blocks * block_size + positions % block_size

    wanted = np.arange(int(logits.sum())) + np.repeat(ends - np.cumsum(logits), logits)
    packed = torch.from_numpy(wide).to(device)
    described = torch.from_numpy(narrow).to(device)
    return StepMeta(
        input_ids=packed[0:1],
        position_ids=packed[1:2],
        cu_seqlens=described[: m + 1],
        starts=described[m + 1 : 2 * m + 1],
        slots=described[bounds[1] : bounds[2]],
        table=described[bounds[2] :].view(m, width),
        logits_rows=torch.from_numpy(wanted).to(device),
    )


def stale_slots(row: RowInput, block_size: int) -> Iterator[tuple[int, int]]:
    """Return (block, first offset) of slots that hold what others left, before the row writes.

    Those are the slots of every block that the row enters in this step.
    """
    first, offset = divmod(row.start, block_size)
    last = (row.start + len(row.token_ids) - 1) // block_size
    if offset and row.is_clean:
        yield row.block_ids[first], offset
    for index in range(first + bool(offset), last + 1):
        yield row.block_ids[index], 0
