"""Paged, packed attention behind transformers' AttentionInterface.

Refuses every option it does not honour: an unknown keyword, a mask made by the model, attention
that is not causal. Honours sliding windows (per layer), soft-capping, any scaling, grouped queries.
Works on CPU and, unproven and unoptimised, on CUDA: plain torch and SDPA on both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from minedraft.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from minedraft.model.kv_pool import KVPool
    from minedraft.model.step_meta import KeySpan, RowGroup, StepMeta

ATTENTION_NAME = "minedraft_paged"
"""Name in AttentionInterface. It has no entry in AttentionMaskInterface, so transformers makes no
masks for it."""

_FEW_QUERIES = 8
_HARMLESS = frozenset(
    {
        "position_ids",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "cache_position",
        "return_dict",
        "logits_to_keep",
    }
)
"""Keywords that models pass on and that do not change attention."""


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Parameters of a layer's attention."""

    scaling: float
    sliding_window: int | None = None
    softcap: float | None = None


class AttentionStep(Protocol):
    """Attention of one forward pass, which the model's layers call."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Attend.

        Args:
            layer: `layer_idx` of the calling module.
            query: [Hq, T, Dk].
            key: [Hkv, T, Dk].
            value: [Hkv, T, Dv].
            options: Of this layer.

        Returns:
            [T, Hq, Dv].
        """


def paged_attention(  # noqa: PLR0917 the signature is transformers'
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,  # noqa: ANN401 whatever a model passes through
) -> tuple[Tensor, None]:
    """Attend for one layer; transformers calls this function.

    Args:
        module: The layer; has `layer_idx`.
        query: [1, Hq, T, D].
        key: [1, Hkv, T, D].
        value: [1, Hkv, T, Dv].
        attention_mask: Must be None.
        scaling: Of the scores; None: 1/sqrt(D).
        dropout: Ignored unless positive.
        **kwargs: `paged` (an `AttentionStep`), `sliding_window`, `softcap`; others are refused
            unless they are None or known to be harmless.

    Returns:
        [1, T, Hq, Dv] and no attention weights.

    Raises:
        ModelError: Names what this attention cannot honour.
    """
    step: AttentionStep | None = kwargs.pop("paged", None)
    window = kwargs.pop("sliding_window", None)
    softcap = kwargs.pop("softcap", None)
    causal = kwargs.pop("is_causal", None)
    name = type(module).__name__
    if step is None:
        raise ModelError(f"{name}: the model does not hand its keyword arguments to attention")
    if attention_mask is not None:
        raise ModelError(f"{name}: attention_mask {tuple(attention_mask.shape)} made by the model")
    if causal is False or (causal is None and getattr(module, "is_causal", True) is False):
        raise ModelError(f"{name}: is_causal=False, attention that looks ahead cannot be served")
    if dropout > 0:
        raise ModelError(f"{name}: dropout={dropout} in attention")
    for option, given in kwargs.items():
        if given is not None and given is not False and option not in _HARMLESS:
            raise ModelError(f"{name}: attention option {option!r} is not supported")
    options = AttentionOptions(
        scaling=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        sliding_window=None if window is None else int(window),
        softcap=None if softcap is None else float(softcap),
    )
    output = step.attend(cast("int", module.layer_idx), query[0], key[0], value[0], options)
    return output[None], None


AttentionInterface.register(ATTENTION_NAME, paged_attention)


class PagedStep:
    """One forward pass over the pool.

    Args:
        meta: The plan of the step.
        pool: Where keys and values live.
    """

    def __init__(self, meta: StepMeta, pool: KVPool) -> None:
        self._meta = meta
        self._pool = pool
        self._pool_rows: dict[int, Tensor] = {}
        self._spans: dict[tuple[object, ...], KeySpan] = {}
        self._padding: dict[int, tuple[Tensor, Tensor]] = {}
        self.last: tuple[Tensor, ...] = ()
        """Keys [Hkv, T, Dk] and values [Hkv, T, Dv] of the last layer, once it has attended."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Store this layer's keys and values, then attend group by group (see AttentionStep)."""
        num_kv_heads = key.shape[0]
        rows = self._pool_rows.get(num_kv_heads)
        if rows is None:
            rows = self._pool_rows[num_kv_heads] = self._meta.pool_rows(num_kv_heads)
        self._pool.write(layer, rows, key, value)
        if layer == self._pool.num_layers - 1:
            self.last = (key, value)
        outputs = [
            self._attend_group(layer, index, query, num_kv_heads, options)
            for index in range(len(self._meta.groups))
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _attend_group(
        self, layer: int, index: int, query: Tensor, num_kv_heads: int, options: AttentionOptions
    ) -> Tensor:
        group = self._meta.groups[index]
        num_heads = query.shape[0]
        span = self._span(index, group, options, query, num_kv_heads)
        keys, values = self._pool.gather(layer, span.pages, group.num_rows, num_kv_heads)
        if group.is_long:
            return _attend_long(query[:, group.tokens], keys, values, span, options)

        padding = self._pads(index, group, query.device)
        rows, length, repeats = group.num_rows, group.query_len, num_heads // num_kv_heads
        chunk = query[:, group.tokens] if padding is None else query.index_select(1, padding[0])
        # The queries of all heads that share a KV head form one longer query: no repeated keys.
        packed = chunk.reshape(num_kv_heads, repeats, rows, length, -1).permute(2, 0, 1, 3, 4)
        packed = packed.reshape(rows, num_kv_heads, repeats * length, -1)  # [m, Hkv, G*q, D]
        output = _attend(packed, keys, values, span.packed_mask, options)
        output = output.reshape(rows, num_kv_heads, repeats, length, -1).permute(0, 3, 1, 2, 4)
        output = output.reshape(rows * length, num_heads, -1)  # [m*q, Hq, Dv]
        return output if padding is None else output.index_select(0, padding[1])

    def _span(
        self,
        index: int,
        group: RowGroup,
        options: AttentionOptions,
        query: Tensor,
        num_kv_heads: int,
    ) -> KeySpan:
        heads = (query.shape[0], num_kv_heads)
        need_mask = options.softcap is not None
        key = (index, options.sliding_window, need_mask, heads)
        span = self._spans.get(key)
        if span is None:
            span = group.span(options.sliding_window, need_mask=need_mask, like=query, heads=heads)
            self._spans[key] = span
        return span

    def _pads(
        self, index: int, group: RowGroup, device: torch.device
    ) -> tuple[Tensor, Tensor] | None:
        if group.pad_index is None or group.keep_index is None:
            return None
        found = self._padding.get(index)
        if found is None:
            found = (
                torch.tensor(group.pad_index, device=device),
                torch.tensor(group.keep_index, device=device),
            )
            self._padding[index] = found
        return found


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
