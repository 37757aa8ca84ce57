"""The drafter's open rows and their share of its KV pool. A cache: any of it may be dropped. Pure.

Of each row it knows which tokens its KV was built from. A row that is brought to a new committed
length keeps the KV of the common prefix; whatever differs (rejected drafts) is fed again. Full
blocks of committed tokens are published: a row whose tokens begin alike takes them over.

What is drawn ahead (`run_ahead`) takes blocks that are empty, and gives them back to any row that
asks: who has room, and which cached blocks are evicted, is the same with and without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minedraft.errors import ProtocolError
from minedraft.prefix import PrefixCache, extend_keys
from minedraft.services.drafter.labels import Labels
from minedraft.types import DebugOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.model.sampling_row import SamplingRow
    from minedraft.plans import DraftRow
    from minedraft.services.drafter.labels import Outcome
    from minedraft.types import RowId


@dataclass(slots=True)
class Row:
    """One open row."""

    sampling: SamplingRow
    debug: DebugOptions = field(default_factory=DebugOptions)
    """For test kinds of drafters."""
    salt: str = ""
    """Rows with another one share no block with it."""
    cached: list[int] = field(default_factory=list)
    """Tokens whose KV is in the pool, position 0 first; may run past the committed length."""
    num_agreed: int = 0
    """Leading tokens of `cached` that are known to be committed."""
    block_ids: list[int] = field(default_factory=list)
    ahead_block_ids: list[int] | None = None
    """Blocks after `block_ids` that hold KV drawn ahead; None: nothing of the row is drawn ahead,
    or its KV is gone."""
    block_keys: list[bytes] = field(default_factory=list)
    """Keys of the first full blocks of its committed tokens, as far as they were asked for."""
    num_published: int = 0
    """Blocks of `block_ids` that others may list: the row must not write to them."""
    is_broken: bool = False
    """The draft model has no numbers for its committed tokens: nothing is drafted for it."""
    parked_at: int = -1
    """Times that blocks had come back when this row found no room; -1: it never did."""
    labels: Labels = field(default_factory=Labels)
    """Its drafts whose outcome is not told yet."""

    def token(self, position: int) -> int:
        """Committed token at a position."""
        num_prompt = len(self.sampling.prompt_token_ids)
        if position < num_prompt:
            return self.sampling.prompt_token_ids[position]
        return self.sampling.output_token_ids[position - num_prompt]

    def bring_up(self, base_len: int, new_token_ids: Sequence[int]) -> None:
        """Set the committed length, where the last tokens are these.

        Raises:
            ProtocolError: there would be a hole, or the prompt would change.
        """
        if self.labels:
            start, length = base_len - len(new_token_ids), self.sampling.num_tokens
            again = [self.token(position) for position in range(max(start, 0), length)]
            if base_len < length or again != list(new_token_ids[: len(again)]):
                self.labels.clear()
        self.sampling.set_committed(base_len, new_token_ids)

    def judge(self) -> Outcome:
        """News of what it drafted before."""
        return self.labels.judge(self.token, self.sampling.num_tokens)

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
        self.cached, self.num_agreed, self.num_published = [], 0, 0
        return blocks


class DrafterRows:
    """Rows by id, and the blocks they list.

    Args:
        num_blocks: Blocks of the pool.
        block_size: Tokens a block holds.
        fingerprint: Of the weights.
        prefix_cache: Whether rows that begin alike share blocks.
    """

    def __init__(
        self, num_blocks: int, block_size: int, *, fingerprint: str = "", prefix_cache: bool = True
    ) -> None:
        self.num_hit_tokens = 0
        """Committed tokens that rows found in published blocks, and were not fed."""
        self.shares = True
        """Whether rows of this step may share; those of a measurement must be fed."""
        self._rows: dict[RowId, Row] = {}
        self._blocks = PrefixCache(num_blocks, block_size, is_on=prefix_cache)
        self._fingerprint = fingerprint
        self._ahead: dict[int, Row] = {}
        """By identity: rows with `ahead_block_ids`."""
        self._num_returns = 0
        """Times that a row gave blocks back; one that found no room waits for the next time."""

    @property
    def num_rows(self) -> int:
        """Open rows."""
        return len(self._rows)

    @property
    def block_size(self) -> int:
        """Tokens a block holds."""
        return self._blocks.block_size

    @property
    def num_blocks_used(self) -> int:
        """Blocks in use."""
        return self._blocks.num_used

    @property
    def num_blocks_cached(self) -> int:
        """Blocks that no row lists and that rows to come may find."""
        return self._blocks.num_cached

    def open(self, row_id: RowId, row: Row) -> None:
        """Open a row; one that is open already starts over."""
        self.close(row_id)
        self._rows[row_id] = row

    def close(self, row_id: RowId) -> None:
        """Forget a row. Unknown ids are fine."""
        row = self._rows.pop(row_id, None)
        if row is not None:
            self.drop_ahead(row)
            self._give_back(row.block_ids)

    def is_open(self, row: Row, row_id: RowId) -> bool:
        """Whether a row is the open one of that id."""
        return self._rows.get(row_id) is row

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
        row.bring_up(planned.base_len, planned.new_token_ids)
        return row

    def look_up(self, row: Row) -> bytes | None:
        """Give a row, which is cut to what is committed, the published blocks that follow that.

        They end below its last committed token: that is always fed, into a block of its own. So no
        row writes to a block of others.

        Returns:
            The key of the next block that it might share; None: it has all but a part of one.
        """
        size, length = self._blocks.block_size, row.sampling.num_tokens
        if row.num_agreed < row.num_published * size:
            # What was said to be committed is to be written anew.
            self._drop_cache(row)
            row.block_keys.clear()
        first, last = row.num_agreed // size, (length - 1) // size
        if first >= last or not (self._blocks.is_on and self.shares):
            return None
        found = self._blocks.find(self._key(row, index) for index in range(first, last))
        if found:
            self.drop_ahead(row)
            self._blocks.share(found)
            self._blocks.free(row.block_ids[first:])
            row.block_ids[first:] = found
            end = (first + len(found)) * size
            row.cached += [row.token(position) for position in range(row.num_agreed, end)]
            self.num_hit_tokens += end - row.num_agreed
            row.num_agreed = end
            row.num_published = first + len(found)
        index = first + len(found)
        return self._key(row, index) if index < last else None

    def publish(self, row: Row) -> None:
        """Let others have the full blocks of a row, as far as it will not write to them again."""
        size = self._blocks.block_size
        num_full = min(row.num_agreed, row.sampling.num_tokens - 1) // size
        if num_full <= row.num_published or not (self._blocks.is_on and self.shares):
            return
        for index in range(row.num_published, num_full):
            self._blocks.publish(row.block_ids[index], self._key(row, index))
        row.num_published = num_full

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
        if need > self._blocks.num_free + self._num_ahead_blocks:
            self._drop_cache(row)
            row.parked_at = self._num_returns
            return False
        if need > 0:
            own = row.ahead_block_ids or []
            taken, own[:] = own[:need], own[need:]
            if need - len(taken) > self._blocks.num_empty:
                for other in list(self._ahead.values()):
                    if other is not row:
                        self.drop_ahead(other)
            row.block_ids += taken + self._blocks.allocate(need - len(taken))
        return True

    def reserve_ahead(self, row: Row, num_positions: int) -> bool:
        """Give a row blocks to draw ahead in, out of empty ones; False: there are too few."""
        if row.ahead_block_ids is None:
            row.ahead_block_ids = []
            self._ahead[id(row)] = row
        num_held = len(row.block_ids) + len(row.ahead_block_ids)
        need = self._blocks.blocks_for(num_positions) - num_held
        if need > self._blocks.num_empty:
            return False
        if need > 0:
            row.ahead_block_ids += self._blocks.allocate(need)
        return True

    def drop_ahead(self, row: Row) -> None:
        """Forget what was drawn ahead of a row. No row waits for these blocks: none was refused."""
        if row.ahead_block_ids is not None:
            del self._ahead[id(row)]
            self._blocks.free(row.ahead_block_ids)
            row.ahead_block_ids = None

    def give_up(self, row: Row) -> None:
        """Drop the KV of a row that the model has no numbers for, and never feed it again."""
        row.is_broken = True
        self._blocks.withdraw(row.block_ids)
        self._drop_cache(row)

    def _key(self, row: Row, index: int) -> bytes:
        """Key of a full block of committed tokens, hashed once."""
        keys, size = row.block_keys, self._blocks.block_size
        if len(keys) <= index:
            tokens = [row.token(p) for p in range(len(keys) * size, (index + 1) * size)]
            extend_keys(keys, tokens, size, salt=row.salt, fingerprint=self._fingerprint)
        return keys[index]

    @property
    def _num_ahead_blocks(self) -> int:
        return sum(len(row.ahead_block_ids or ()) for row in self._ahead.values())

    def _drop_cache(self, row: Row) -> None:
        self.drop_ahead(row)
        self._give_back(row.drop_cache())

    def _give_back(self, block_ids: list[int]) -> None:
        self._num_returns += bool(block_ids)
        self._blocks.free(block_ids)
