"""The drafter's open rows and their share of its KV pool. A cache: any of it may be dropped. Pure.

Of each row it knows which tokens its KV was built from. A row that is brought to a new committed
length keeps the KV of the common prefix; whatever differs (rejected drafts) is fed again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minedraft.blocks import BlockAllocator
from minedraft.errors import ProtocolError
from minedraft.types import DebugOptions

if TYPE_CHECKING:
    from minedraft.model.sampling_row import SamplingRow
    from minedraft.plans import DraftRow
    from minedraft.types import RowId


@dataclass(slots=True)
class Row:
    """One open row."""

    sampling: SamplingRow
    debug: DebugOptions = field(default_factory=DebugOptions)
    """For test kinds of drafters."""
    cached: list[int] = field(default_factory=list)
    """Tokens whose KV is in the pool, position 0 first; may run past the committed length."""
    num_agreed: int = 0
    """Leading tokens of `cached` that are known to be committed."""
    block_ids: list[int] = field(default_factory=list)
    is_broken: bool = False
    """The draft model has no numbers for its committed tokens: nothing is drafted for it."""
    parked_at: int = -1
    """Times that blocks had come back when this row found no room; -1: it never did."""

    def token(self, position: int) -> int:
        """Committed token at a position."""
        num_prompt = len(self.sampling.prompt_token_ids)
        if position < num_prompt:
            return self.sampling.prompt_token_ids[position]
        return self.sampling.output_token_ids[position - num_prompt]

    def reference(self, start: int, count: int) -> tuple[int, ...]:
        """Return up to `count` tokens of the reference, `start` after the committed ones."""
        first = len(self.sampling.output_token_ids) + start
        return self.debug.reference_token_ids[first : first + count]

    def missing(self) -> list[int]:
        """Cut `cached` to what agrees with the committed tokens; return those to feed.

        At least one: the last committed token is fed again if need be, for its logits.
        """
        length = self.sampling.num_tokens
        end = min(len(self.cached), length - 1)
        agreed = min(self.num_agreed, end)
        # Forward from what is known: a draft that agrees after one that does not is worthless,
        # its KV was built on the wrong one.
        while agreed < end and self.cached[agreed] == self.token(agreed):
            agreed += 1
        del self.cached[agreed:]
        self.num_agreed = agreed
        return [self.token(position) for position in range(agreed, length)]

    def drop_cache(self) -> list[int]:
        """Give up all KV; return the blocks."""
        blocks, self.block_ids = self.block_ids, []
        self.cached, self.num_agreed = [], 0
        return blocks


class DrafterRows:
    """Rows by id, and the blocks they own.

    Args:
        num_blocks: Blocks of the pool.
        block_size: Tokens a block holds.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._rows: dict[RowId, Row] = {}
        self._blocks = BlockAllocator(num_blocks, block_size)
        self._num_returns = 0
        """Times that a row gave blocks back; one that found no room waits for the next time."""

    @property
    def num_rows(self) -> int:
        """Open rows."""
        return len(self._rows)

    @property
    def num_blocks_used(self) -> int:
        """Blocks in use."""
        return self._blocks.num_used

    def open(self, row_id: RowId, row: Row) -> None:
        """Open a row; one that is open already starts over."""
        self.close(row_id)
        self._rows[row_id] = row

    def close(self, row_id: RowId) -> None:
        """Forget a row. Unknown ids are fine."""
        row = self._rows.pop(row_id, None)
        if row is not None:
            self._give_back(row.block_ids)

    def reset(self) -> None:
        """Forget all rows."""
        for row_id in list(self._rows):
            self.close(row_id)

    def bring_up(self, planned: DraftRow) -> Row:
        """Bring a row's history to the committed length of a plan.

        Raises:
            ProtocolError: it is not open, or there would be a hole.
        """
        row = self._rows.get(planned.row_id)
        if row is None:
            raise ProtocolError(f"draft plan names row {planned.row_id}, which is not open")
        row.sampling.set_committed(planned.base_len, planned.new_token_ids)
        return row

    def reserve(self, row: Row, num_positions: int) -> bool:
        """Give a row blocks for that many positions.

        Returns:
            False: the pool is short. The row's KV is given up, so that others can move; it is not
            drafted for until another row has ended or given up: asking sooner would only feed it
            again and drop it again.
        """
        if row.parked_at == self._num_returns:
            return False
        need = self._blocks.blocks_for(num_positions) - len(row.block_ids)
        if need > self._blocks.num_free:
            self._give_back(row.drop_cache())
            row.parked_at = self._num_returns
            return False
        if need > 0:
            row.block_ids += self._blocks.allocate(need)
        return True

    def give_up(self, row: Row) -> None:
        """Drop the KV of a row that the model has no numbers for, and never feed it again."""
        row.is_broken = True
        self._give_back(row.drop_cache())

    def _give_back(self, block_ids: list[int]) -> None:
        self._num_returns += bool(block_ids)
        self._blocks.free(block_ids)
