"""A decoder layer over the kernels. Refuses to know families: it is built from parts.

The residual is changed in place from the first block to the last, so a block must be its only
reader while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.attention import AttentionOptions, PagedStep
    from minedraft.model.blocks.stored_linear import Product
    from minedraft.model.kernels.interface import Heads, Kernels


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """An RMS norm."""

    weight: Tensor
    """[H] float32."""
    eps: float
    plus_one: bool


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """The attention half of a layer."""

    layer: int
    """Its index in the pool."""
    heads: Heads
    options: AttentionOptions
    before: Norm
    qkv: Product
    output: Product
    after: Norm | None
    query_norm: Norm | None
    key_norm: Norm | None


class Feed(Protocol):
    """What the MLP of a layer does with normed activations."""

    def __call__(self, x: Tensor) -> Tensor:
        """[T, hidden] -> [T, hidden]."""

    def add(self, x: Tensor, residual: Tensor) -> None:
        """Add the same into the residual, in place."""


class Block(nn.Module):
    """A decoder layer; transformers' model calls it as it would call its own.

    Args:
        kernels: The arithmetic.
        attention: Its attention half.
        before_mlp: Norm of what the MLP gets.
        feed: Its MLP.
        after_mlp: Norm of what the MLP adds.
    """

    def __init__(
        self,
        kernels: Kernels,
        attention: Attention,
        before_mlp: Norm,
        feed: Feed,
        after_mlp: Norm | None,
    ) -> None:
        super().__init__()
        self._kernels = kernels
        self._attention = attention
        self._before_mlp = before_mlp
        # A module among the parts is found by those who walk the model's modules.
        self._parts = nn.ModuleList(
            part for part in (attention.qkv, attention.output, feed) if isinstance(part, nn.Module)
        )
        self._feed = feed
        self._after_mlp = after_mlp

    def forward(
        self,
        hidden_states: Tensor,
        *,
        position_embeddings: tuple[Tensor, Tensor],
        paged: PagedStep,
        **_: Any,  # noqa: ANN401 masks, caches and whatever else a model hands to its layers
    ) -> Tensor:
        """Run the layer, changing `hidden_states` [1, T, hidden] in place, and return it.

        Args:
            hidden_states: The residual.
            position_embeddings: cos and sin of the model's rotary module, [1, T, R].
            paged: The step.
            **_: Ignored.
        """
        residual = hidden_states[0]
        attended = self._attend(
            self._norm(residual, self._attention.before), position_embeddings, paged
        )
        self._add(attended, residual, self._attention.output, self._attention.after)
        self._add(self._norm(residual, self._before_mlp), residual, self._feed, self._after_mlp)
        return hidden_states

    def _attend(
        self, x: Tensor, position_embeddings: tuple[Tensor, Tensor], paged: PagedStep
    ) -> Tensor:
        """[T, hidden] -> [T, Hq * D]."""
        half, kernels = self._attention, self._kernels
        heads = half.heads
        qkv = half.qkv(x)
        by_head = qkv.view(qkv.shape[0], -1, heads.head_dim)
        queries = by_head[:, : heads.num_query_heads]
        if half.query_norm is not None:
            self._norm_heads(queries, half.query_norm)
        if half.key_norm is not None:
            rotated = heads.num_query_heads + heads.num_kv_heads
            self._norm_heads(by_head[:, heads.num_query_heads : rotated], half.key_norm)
        rope = paged.rope(position_embeddings)
        kernels.rope_write(qkv, rope, paged.pool, half.layer, paged.meta, heads=heads)
        paged.saw(half.layer, qkv)
        return kernels.attend(queries, paged.pool, half.layer, paged.meta, half.options)

    def _add(
        self, x: Tensor, residual: Tensor, product: Product | Feed, after: Norm | None
    ) -> None:
        if after is None:
            product.add(x, residual)
        else:
            residual.add_(self._norm(product(x), after))

    def _norm(self, x: Tensor, norm: Norm) -> Tensor:
        return self._kernels.norm(x, norm.weight, norm.eps, plus_one=norm.plus_one)

    def _norm_heads(self, x: Tensor, norm: Norm) -> None:
        self._kernels.norm_heads(x, norm.weight, norm.eps, plus_one=norm.plus_one)
