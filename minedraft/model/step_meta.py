"""The plan of one forward pass: slots, gather indices, masks; built once, used by every layer.

Refuses to touch keys, values or the model. Rows are grouped by what one attention call can serve:
short rows (decode and verify) together, padded to one query length; each prefill chunk alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from minedraft.model.batch import RowInput

LONG_QUERY = 48
"""Rows with more tokens than this are attended one by one: their attention is bound by arithmetic,
so nothing is won by batching them and padding would cost."""
SPLIT_SAVING = 1024
"""Padding keys (rows x positions) whose gather and attention cost about as much as one more
attention call per layer; a group is cut where that many would be saved."""


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The keys that the queries of a group see through one window."""

    pages: Tensor
    """[m * Hkv * n] int64 for `KVPool.gather`; short rows repeat their last block (masked)."""
    mask: Tensor | None
    """[m, 1, q, n * block_size] additive in the model's dtype, 0 or -inf; None: plain causal over
    exactly q keys (a prefill from position 0)."""
    packed_mask: Tensor | None
    """The same for queries of all heads of a KV head in one: [m, Hkv, G * q, n * block_size]."""


class RowGroup:
    """Rows that one attention call serves.

    Args:
        rows: The group's rows, in packed order.
        first: Index of its first token in the packed step.
        block_size: Positions a block holds.
    """

    def __init__(self, rows: Sequence[RowInput], first: int, block_size: int) -> None:
        self._rows = rows
        self._block_size = block_size
        lengths = [len(row.token_ids) for row in rows]
        self.num_rows = len(rows)
        self.query_len = max(lengths)
        """Tokens per row after padding."""
        self.tokens = slice(first, first + sum(lengths))
        self.is_long = self.query_len > LONG_QUERY
        self.pad_index: list[int] | None = None
        """Packed token index of each padded query; None: no row is padded."""
        self.keep_index: list[int] | None = None
        """Padded query index of each token of the group; None likewise."""
        if min(lengths) < self.query_len:
            self.pad_index, self.keep_index = _padding(lengths, self.query_len, first)

    def span(
        self, window: int | None, *, need_mask: bool, like: Tensor, heads: tuple[int, int]
    ) -> KeySpan:
        """Build the keys that these rows see.

        Args:
            window: Sliding window in positions, this one included; None: all earlier ones.
            need_mask: Build a mask even where the causal flag would do.
            like: A tensor whose dtype and device the mask takes.
            heads: Query and KV heads of the layer.
        """
        size, rows = self._block_size, self._rows
        starts = [row.start for row in rows]
        ends = [row.start + len(row.token_ids) for row in rows]
        window = None if window is None or window >= max(ends) else window
        firsts = [0 if window is None else max(0, s - window + 1) // size for s in starts]
        lasts = [-(-end // size) for end in ends]
        width = max(last - first for first, last in zip(firsts, lasts, strict=True))
        table: list[int] = []
        for row, first, last in zip(rows, firsts, lasts, strict=True):
            table += row.block_ids[first:last]
            table += [row.block_ids[last - 1]] * (width - (last - first))
        num_kv_heads = heads[1]
        blocks = torch.tensor(table, dtype=torch.int64).view(self.num_rows, 1, width)
        pages = blocks * num_kv_heads + torch.arange(num_kv_heads)[:, None]  # [m, Hkv, n]
        pages = pages.flatten().to(like.device)
        if (
            self.is_long
            and self.num_rows == 1
            and starts[0] == 0
            and window is None
            and not need_mask
        ):
            return KeySpan(pages, None, None)

        offsets = torch.arange(self.query_len)
        last_offsets = torch.tensor([len(row.token_ids) - 1 for row in rows])
        # Padded queries repeat the row's last one, so every query sees at least itself.
        query = torch.tensor(starts)[:, None] + torch.minimum(offsets, last_offsets[:, None])
        key = torch.tensor(firsts)[:, None] * size + torch.arange(width * size)  # [m, L]
        hidden = key[:, None, :] > query[:, :, None]  # [m, q, L]
        if window is not None:
            hidden |= key[:, None, :] <= query[:, :, None] - window
        mask = torch.zeros(hidden.shape, dtype=like.dtype).masked_fill_(hidden, float("-inf"))
        mask = mask[:, None].to(like.device)  # [m, 1, q, L]
        packed = None if self.is_long else mask.repeat(1, num_kv_heads, heads[0] // num_kv_heads, 1)
        return KeySpan(pages, mask, packed)


@dataclass(frozen=True, slots=True)
class StepMeta:
    """The input of a forward pass beside the weights. All tensors are on the model's device."""

    input_ids: Tensor
    """[1, T] int64, all rows packed in group order."""
    position_ids: Tensor
    """[1, T] int64."""
    blocks: Tensor
    """[T] int64, block of each token."""
    offsets: Tensor
    """[T] int64, its place in the block."""
    logits_rows: Tensor
    """[R] int64, packed tokens whose logits are wanted, in the order of the caller's rows."""
    groups: tuple[RowGroup, ...]
    block_size: int
    order: tuple[int, ...]
    """[R] the caller's index of each row, in packed order."""
    stale: tuple[tuple[int, int], ...]
    """(block, first offset): slots that hold what others left there, before the step writes."""

    def pool_rows(self, num_kv_heads: int) -> Tensor:
        """[T * Hkv] int64: where `KVPool.write` puts each token's heads."""
        heads = torch.arange(num_kv_heads, device=self.blocks.device)
        pages = self.blocks[:, None] * num_kv_heads + heads  # [T, Hkv]
        return (pages * self.block_size + self.offsets[:, None]).flatten()


def plan_step(rows: Sequence[RowInput], *, block_size: int, device: torch.device) -> StepMeta:
    """Order, pack and group rows.

    Args:
        rows: Checked rows (`minedraft.model.batch.check_rows`).
        block_size: Positions a block holds.
        device: Where the tensors go.
    """
    groups: list[RowGroup] = []
    order: list[int] = []
    first = 0
    for members in _group(rows):
        groups.append(RowGroup([rows[i] for i in members], first, block_size))
        first = groups[-1].tokens.stop
        order += members

    tokens: list[int] = []
    positions: list[int] = []
    blocks: list[int] = []
    ends = [0] * len(rows)
    for index in order:
        row = rows[index]
        span = range(row.start, row.start + len(row.token_ids))
        tokens += row.token_ids
        positions += span
        blocks += [row.block_ids[p // block_size] for p in span]
        ends[index] = len(tokens)
    wanted = chain.from_iterable(
        range(end - row.num_logits, end) for row, end in zip(rows, ends, strict=True)
    )
    packed = torch.tensor([tokens, positions, blocks], dtype=torch.int64).to(device)
    return StepMeta(
        input_ids=packed[0:1],
        position_ids=packed[1:2],
        blocks=packed[2],
        offsets=packed[1] % block_size,
        logits_rows=torch.tensor(list(wanted), dtype=torch.int64).to(device),
        groups=tuple(groups),
        block_size=block_size,
        order=tuple(order),
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


def _group(rows: Sequence[RowInput]) -> list[list[int]]:
    """Return the row indices of each group: short rows by falling context, then long ones."""
    ends = [row.start + len(row.token_ids) for row in rows]
    short = [i for i, row in enumerate(rows) if len(row.token_ids) <= LONG_QUERY]
    groups: list[list[int]] = []
    for members in _by_query_length(rows, short):
        members.sort(key=lambda i: -ends[i])
        groups += _cut([ends[i] for i in members], members)
    groups += [[i] for i, row in enumerate(rows) if len(row.token_ids) > LONG_QUERY]
    return groups


def _by_query_length(rows: Sequence[RowInput], indices: list[int]) -> list[list[int]]:
    """Group rows whose query lengths are within a factor of two or within 8 tokens."""
    classes: dict[int, list[int]] = {}
    for index in indices:
        classes.setdefault(max(3, (len(rows[index].token_ids) - 1).bit_length()), []).append(index)
    return list(classes.values())


def _cut(ends: list[int], members: list[int]) -> list[list[int]]:
    """Cut falling context lengths where the padding saved pays for one more attention call."""
    groups: list[list[int]] = []
    begin = 0
    for at in range(1, len(members)):
        saved = (len(members) - at) * (ends[begin] - ends[at])
        if 2 * ends[at] <= ends[begin] and saved >= SPLIT_SAVING:
            groups.append(members[begin:at])
            begin = at
    groups.append(members[begin:])
    return groups


def _padding(lengths: list[int], query_len: int, first: int) -> tuple[list[int], list[int]]:
    pad: list[int] = []
    keep: list[int] = []
    at = first
    for row, length in enumerate(lengths):
        pad += range(at, at + length)
        pad += [at + length - 1] * (query_len - length)
        keep += range(row * query_len, row * query_len + length)
        at += length
    return pad, keep
