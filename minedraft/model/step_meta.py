"""The plan of one forward pass as tensors: tokens, positions, slots, block tables.

Refuses to touch keys, values or the model. Rows are packed in the caller's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING

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
    stale: tuple[tuple[int, int], ...]
    """(block, first offset): slots that hold what others left there, before the step writes."""


def plan_step(rows: Sequence[RowInput], *, block_size: int, device: torch.device) -> StepMeta:
    """Pack rows.

    Args:
        rows: Checked rows (`minedraft.model.batch.check_rows`).
        block_size: Positions a block holds.
        device: Where the tensors go.
    """
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    used: list[Sequence[int]] = []
    for row in rows:
        span = range(row.start, row.start + len(row.token_ids))
        tokens += row.token_ids
        positions += span
        slots += [row.block_ids[p // block_size] * block_size + p % block_size for p in span]
        used.append(row.block_ids[: -(-span.stop // block_size)])
    bounds = [0, *accumulate(len(row.token_ids) for row in rows)]
    width = max(len(blocks) for blocks in used)
    table = [[*blocks, *[blocks[-1]] * (width - len(blocks))] for blocks in used]
    wanted = chain.from_iterable(
        range(end - row.num_logits, end) for row, end in zip(rows, bounds[1:], strict=True)
    )
    packed = torch.tensor([tokens, positions], dtype=torch.int64).to(device)
    return StepMeta(
        input_ids=packed[0:1],
        position_ids=packed[1:2],
        cu_seqlens=torch.tensor(bounds, dtype=torch.int32).to(device),
        starts=torch.tensor([row.start for row in rows], dtype=torch.int32).to(device),
        table=torch.tensor(table, dtype=torch.int32).to(device),
        slots=torch.tensor(slots, dtype=torch.int32).to(device),
        logits_rows=torch.tensor(list(wanted), dtype=torch.int64).to(device),
        stale=tuple(slot for row in rows for slot in _stale(row, block_size)),
    )


def _stale(row: RowInput, block_size: int) -> Iterator[tuple[int, int]]:
    """Return slots of a row with foreign content: those of every block that this step enters."""
    first, offset = divmod(row.start, block_size)
    last = (row.start + len(row.token_ids) - 1) // block_size
    if offset and row.is_clean:
        yield row.block_ids[first], offset
    for index in range(first + bool(offset), last + 1):
        yield row.block_ids[index], 0
