"""The input of a forward pass: rows of tokens with their block tables. No tensors.

Refuses rows that would write outside their own blocks; allocating those blocks is the caller's job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence


class RowsError(StateError):
    """Rows that a pool cannot hold: who wrote the plan of the step is wrong."""


@dataclass(frozen=True, slots=True)
class RowInput:
    """The part of a packed forward pass that belongs to one sequence."""

    token_ids: Sequence[int]
    """Tokens to feed, at least one."""
    start: int
    """Position of ``token_ids[0]``: the number of valid KV positions before it. A start below what
    was fed earlier is a rollback: the positions from there on are overwritten."""
    block_ids: Sequence[int]
    """Block table; entry i holds positions ``[i * block_size, (i + 1) * block_size)``."""
    num_logits: int
    """Logits wanted, for the last `num_logits` tokens; 0..len(token_ids)."""
    is_clean: bool = False
    """Whether to clear the row's blocks from `start` on first."""


def check_rows(
    rows: Sequence[RowInput], *, block_size: int, num_blocks: int, max_model_len: int
) -> None:
    """Refuse rows that the pool cannot hold.

    Args:
        rows: At least one.
        block_size: Positions a block holds.
        num_blocks: Blocks of the pool.
        max_model_len: Most positions a sequence may have.

    Raises:
        RowsError: Names the row, the field and the value; also when two rows share a block that
            one of them writes, which would let them overwrite each other.
    """
    if not rows:
        raise RowsError("forward: no rows")
    writers: dict[int, int] = {}
    for index, row in enumerate(rows):
        length = len(row.token_ids)
        end = row.start + length
        if length == 0:
            raise RowsError(f"row {index}: token_ids is empty")
        if row.start < 0 or end > max_model_len:
            raise RowsError(
                f"row {index}: positions {row.start}..{end - 1} are outside 0..{max_model_len - 1}"
            )
        if not 0 <= row.num_logits <= length:
            raise RowsError(f"row {index}: num_logits={row.num_logits} is not in 0..{length}")
        needed = -(-end // block_size)
        if len(row.block_ids) < needed:
            raise RowsError(
                f"row {index}: {len(row.block_ids)} blocks cannot hold {end} positions, "
                f"{needed} are needed"
            )
        used = row.block_ids[:needed]
        if min(used) < 0 or max(used) >= num_blocks:
            raise RowsError(f"row {index}: block_ids outside 0..{num_blocks - 1}")
        for block in used[row.start // block_size :]:
            if writers.setdefault(block, index) != index:
                raise RowsError(
                    f"row {index}: block {block} is also written by row {writers[block]}"
                )
