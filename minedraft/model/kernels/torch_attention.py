"""Paged attention in plain torch: gathers a row's blocks side by side, masks, multiplies.

Rows are grouped by what one attention call can serve: short rows (decode and verify) together,
padded to one query length; each prefill chunk alone. A masked key is still multiplied by 0, so a
block must hold finite numbers: `minedraft.model.runner` clears those that change hands.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.attention import AttentionOptions
    from minedraft.model.kernels.interface import Step
    from minedraft.model.kv_pool import KVPool

LONG_QUERY = 48
"""Rows with more tokens than this are attended one by one: their attention is bound by arithmetic,
so nothing is won by batching them and padding would cost."""
SPLIT_SAVING = 1024
"""Padding keys (rows x positions) whose gather and attention cost about as much as one more
attention call per layer; a group is cut where that many would be saved."""
_FEW_QUERIES = 8


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


class StepPlan:
    """What all layers of a step share: groups, gather indices, masks.

    Args:
        step: Where its tokens are.
        block_size: Positions a block holds.
    """

    def __init__(self, step: Step, block_size: int) -> None:
        self.step = step
        self._block_size = block_size
        self._pool_rows: dict[int, Tensor] = {}
        self._spans: dict[tuple[object, ...], KeySpan] = {}
        bounds, starts = step.cu_seqlens.tolist(), step.starts.tolist()
        rows = [_Row(s, b, e) for s, (b, e) in zip(starts, pairwise(bounds), strict=True)]
        table = step.table.cpu().to(torch.int64)
        self.groups = [
            RowGroup(
                [rows[i] for i in members],
                table[members],
                block_size=block_size,
                num_tokens=bounds[-1],
                device=step.table.device,
            )
            for members in _group(rows)
        ]

    def pool_rows(self, num_kv_heads: int) -> Tensor:
        """[T * Hkv] int64: where `KVPool.write` puts each token's heads."""
        rows = self._pool_rows.get(num_kv_heads)
        if rows is None:
            slots = self.step.slots.to(torch.int64)
            blocks = slots.div(self._block_size, rounding_mode="floor")
            heads = torch.arange(num_kv_heads, device=slots.device)
            pages = blocks[:, None] * num_kv_heads + heads  # [T, Hkv]
            rows = (pages * self._block_size + (slots % self._block_size)[:, None]).flatten()
            self._pool_rows[num_kv_heads] = rows
        return rows

    def attend(self, layer: int, query: Tensor, pool: KVPool, options: AttentionOptions) -> Tensor:
        """Attend group by group: [T, Hq, D] -> [T, Hq * Dv]."""
        heads = query.transpose(0, 1)
        if len(self.groups) == 1:
            return self._attend_group(layer, 0, heads, pool, options).flatten(1)
        outputs = [
            self._attend_group(layer, index, heads, pool, options)
            for index in range(len(self.groups))
        ]
        merged = query.new_empty(query.shape[0], query.shape[1], outputs[0].shape[-1])
        for group, output in zip(self.groups, outputs, strict=True):
            merged[group.tokens] = output
        return merged.flatten(1)

    def _attend_group(
        self, layer: int, index: int, query: Tensor, pool: KVPool, options: AttentionOptions
    ) -> Tensor:
        """[Hq, T, D] of the whole step -> [tokens of the group, Hq, Dv]."""
        group = self.groups[index]
        num_heads, num_kv_heads = query.shape[0], pool.num_kv_heads(layer)
        span = self._span(index, options, query, num_kv_heads)
        keys, values = pool.gather(layer, span.pages, group.num_rows, num_kv_heads)
        if group.is_long:
            return _attend_long(query[:, group.tokens], keys, values, span, options)

        rows, length, repeats = group.num_rows, group.query_len, num_heads // num_kv_heads
        chunk = query if group.pad_index is None else query.index_select(1, group.pad_index)
        # The queries of all heads that share a KV head form one longer query: no repeated keys.
        packed = chunk.reshape(num_kv_heads, repeats, rows, length, -1).permute(2, 0, 1, 3, 4)
        packed = packed.reshape(rows, num_kv_heads, repeats * length, -1)  # [m, Hkv, G*q, D]
        output = _attend(packed, keys, values, span.packed_mask, options)
        output = output.reshape(rows, num_kv_heads, repeats, length, -1).permute(0, 3, 1, 2, 4)
        output = output.reshape(rows * length, num_heads, -1)  # [m*q, Hq, Dv]
        return output if group.keep_index is None else output.index_select(0, group.keep_index)

    def _span(
        self, index: int, options: AttentionOptions, query: Tensor, num_kv_heads: int
    ) -> KeySpan:
        heads = (query.shape[0], num_kv_heads)
        need_mask = options.softcap is not None
        key = (index, options.sliding_window, need_mask, heads)
        span = self._spans.get(key)
        if span is None:
            span = self.groups[index].span(
                options.sliding_window, need_mask=need_mask, like=query, heads=heads
            )
            self._spans[key] = span
        return span


@dataclass(frozen=True, slots=True)
class _Row:
    start: int
    """Position of its first token."""
    begin: int
    """Its first packed token."""
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.begin

    @property
    def end(self) -> int:
        """Positions after this step."""
        return self.start + self.length


class RowGroup:
    """Rows that one attention call serves.

    Args:
        rows: The group's rows, in packed order.
        table: [m, width] int64 on the CPU, their blocks.
        block_size: Positions a block holds.
        num_tokens: T of the step.
        device: Where its tensors go.
    """

    def __init__(
        self,
        rows: list[_Row],
        table: Tensor,
        *,
        block_size: int,
        num_tokens: int,
        device: torch.device,
    ) -> None:
        self._rows = rows
        self._table = table
        self._block_size = block_size
        self.num_rows = len(rows)
        self.query_len = max(row.length for row in rows)
        """Tokens per row after padding."""
        self.is_long = self.query_len > LONG_QUERY
        count = sum(row.length for row in rows)
        self.is_all = count == num_tokens
        """Whether the group is the whole step."""
        self.tokens: Tensor | slice = slice(rows[0].begin, rows[0].stop)
        """Its packed tokens."""
        self.pad_index: Tensor | None = None
        """[m * q] packed token of each padded query; None: the step's tokens as they are."""
        self.keep_index: Tensor | None = None
        """[tokens] padded query of each token of the group; None: no row is padded."""
        if self.is_long:
            return
        tokens = [t for row in rows for t in range(row.begin, row.stop)]
        self.tokens = torch.tensor(tokens, device=device)
        if count < self.num_rows * self.query_len:
            pad, keep = _padding(rows, self.query_len)
            self.pad_index = torch.tensor(pad, device=device)
            self.keep_index = torch.tensor(keep, device=device)
        elif not self.is_all:
            self.pad_index = self.tokens

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
        window = None if window is None or window >= max(row.end for row in rows) else window
        firsts = torch.tensor(
            [0 if window is None else max(0, row.start - window + 1) // size for row in rows]
        )
        lasts = torch.tensor([-(-row.end // size) for row in rows])
        width = int((lasts - firsts).max())
        columns = torch.minimum(firsts[:, None] + torch.arange(width), lasts[:, None] - 1)
        blocks = self._table.gather(1, columns)[:, None]  # [m, 1, n]
        num_kv_heads = heads[1]
        pages = blocks * num_kv_heads + torch.arange(num_kv_heads)[:, None]  # [m, Hkv, n]
        pages = pages.flatten().to(like.device)
        if self.is_long and rows[0].start == 0 and window is None and not need_mask:
            return KeySpan(pages, None, None)

        # Padded queries repeat the row's last one, so every query sees at least itself.
        last_offsets = torch.tensor([row.length - 1 for row in rows])[:, None]
        starts = torch.tensor([row.start for row in rows])[:, None]
        query = starts + torch.minimum(torch.arange(self.query_len), last_offsets)
        key = firsts[:, None] * size + torch.arange(width * size)  # [m, L]
        hidden = key[:, None, :] > query[:, :, None]  # [m, q, L]
        if window is not None:
            hidden |= key[:, None, :] <= query[:, :, None] - window
        mask = torch.zeros(hidden.shape, dtype=like.dtype).masked_fill_(hidden, float("-inf"))
        mask = mask[:, None].to(like.device)  # [m, 1, q, L]
        packed = None if self.is_long else mask.repeat(1, num_kv_heads, heads[0] // num_kv_heads, 1)
        return KeySpan(pages, mask, packed)


def _group(rows: list[_Row]) -> list[list[int]]:
    """Return the row indices of each group, rising in each: short rows, then long ones."""
    short = [i for i, row in enumerate(rows) if row.length <= LONG_QUERY]
    groups: list[list[int]] = []
    for members in _by_query_length(rows, short):
        members.sort(key=lambda i: -rows[i].end)
        groups += [sorted(part) for part in _cut([rows[i].end for i in members], members)]
    return groups + [[i] for i, row in enumerate(rows) if row.length > LONG_QUERY]


def _by_query_length(rows: list[_Row], indices: list[int]) -> list[list[int]]:
    """Group rows whose query lengths are within a factor of two or within 8 tokens."""
    classes: dict[int, list[int]] = {}
    for index in indices:
        classes.setdefault(max(3, (rows[index].length - 1).bit_length()), []).append(index)
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


def _padding(rows: list[_Row], query_len: int) -> tuple[list[int], list[int]]:
    pad: list[int] = []
    keep: list[int] = []
    for index, row in enumerate(rows):
        pad += range(row.begin, row.stop)
        pad += [row.stop - 1] * (query_len - row.length)
        keep += range(index * query_len, index * query_len + row.length)
    return pad, keep


def _attend_long(
    query: Tensor, keys: Tensor, values: Tensor, span: KeySpan, options: AttentionOptions
) -> Tensor:
    """Attend for one long row.

    Args:
        query: [Hq, q, D].
        keys: [1, Hkv, L, D].
        values: [1, Hkv, L, Dv].
        span: Its mask; None means plain causal over the first q keys.
        options: Of the layer.

    Returns:
        [q, Hq, Dv].
    """
    num_heads, length, _ = query.shape
    num_kv_heads = keys.shape[1]
    if span.mask is None:
        keys, values = keys[:, :, :length], values[:, :, :length]
    heads = query.reshape(num_kv_heads, -1, length, query.shape[-1])  # [Hkv, G, q, D]
    # KV heads take the batch place, so that the heads of a group share keys by a stride of 0.
    shared_keys = keys[0][:, None].expand(-1, heads.shape[1], -1, -1)
    shared_values = values[0][:, None].expand(-1, heads.shape[1], -1, -1)
    output = _attend(heads, shared_keys, shared_values, span.mask, options)
    return output.reshape(num_heads, length, -1).transpose(0, 1)


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, options: AttentionOptions
) -> Tensor:
    """softmax(softcap(q k^T * scaling) + mask) v over the last two dimensions.

    Args:
        query: [a, b, q, D].
        keys: [a, b, L, D].
        values: [a, b, L, Dv].
        mask: [a or 1, b or 1, q, L] additive; None: causal.
        options: Of the layer.

    Returns:
        [a, b, q, Dv].
    """
    if options.softcap is None and not _products_pay(query, keys, mask):
        return F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, is_causal=mask is None, scale=options.scaling
        )
    outer = query.shape[:2]
    queries, keys = query.flatten(0, 1), keys.reshape(-1, *keys.shape[2:])
    if options.softcap is not None:
        scores = torch.bmm(queries, keys.transpose(1, 2)).mul_(options.scaling)
        scores = (
            scores.div_(options.softcap)
            .tanh_()
            .mul_(options.softcap)
            .view(*outer, query.shape[2], -1)
        )
        if mask is not None:
            scores += mask
        scores = scores.flatten(0, 1)
    else:
        scores = torch.baddbmm(
            cast("Tensor", mask).flatten(0, 1), queries, keys.transpose(1, 2), alpha=options.scaling
        )
    weights = torch.softmax(scores, dim=-1)
    output = torch.bmm(weights, values.reshape(-1, *values.shape[2:]))
    return output.view(*outer, *output.shape[1:])


def _products_pay(query: Tensor, keys: Tensor, mask: Tensor | None) -> bool:
    """Whether two batched products beat SDPA: CPU, few queries, contiguous keys, whole mask.

    Measured on an AMD EPYC with AVX512-bf16, 8 and 16 rows of 208 keys (and 8 of 1024), 9 heads
    over 3: in bf16 the products take 0.39 to 0.60 of SDPA's time; in fp32 0.76 to 0.87 with 3
    queries a KV head and 1.03 to 1.16 with 15.
    """
    return (
        mask is not None
        and query.device.type == "cpu"
        and mask.shape[:2] == query.shape[:2]
        and keys.is_contiguous()
        and (query.dtype == torch.bfloat16 or query.shape[2] <= _FEW_QUERIES)
    )
