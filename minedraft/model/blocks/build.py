"""Builds a block from a decoder layer of a known family, or says what keeps it from that.

Refuses what the family's table does not tell of: other parts, parameters, buffers or hooks, a bias
on some of the projections that become one, an activation without a kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from transformers.activations import ACT2FN

from minedraft.model.blocks.block import Attention, Block, Norm
from minedraft.model.blocks.feed import ExpertsFeed, GatedFeed, OwnFeed, Routing
from minedraft.model.blocks.stored_linear import (
    JoinedLinear,
    StoredLinear,
    bias_of,
    is_linear,
    store,
)
from minedraft.model.kernels.interface import Activation, Heads
from minedraft.model.parallel.layers import SplitLinear, SummedLinear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from minedraft.model.attention import AttentionOptions
    from minedraft.model.blocks.block import Feed
    from minedraft.model.blocks.family import Family
    from minedraft.model.blocks.stored_linear import Product
    from minedraft.model.kernels.interface import Kernels
    from minedraft.model.kv_pool import LayerGeometry


class UnknownPartError(Exception):
    """A layer has something that its family does not tell of; the message names it."""


class BlockBuilder:
    """Builds blocks of one family.

    Args:
        family: Its table.
        kernels: The arithmetic.
    """

    def __init__(self, family: Family, kernels: Kernels) -> None:
        self._family = family
        self._kernels = kernels

    def build(
        self, layer: nn.Module, index: int, geometry: LayerGeometry, options: AttentionOptions
    ) -> Block:
        """Build the block of a layer, which stays as it is.

        Args:
            layer: Of the family.
            index: Its index in the pool.
            geometry: Of its keys and values.
            options: Of its attention.

        Raises:
            UnknownPartError: no block computes what this layer does.
        """
        family = self._family
        names = [family.before_attention, family.after_attention, family.before_mlp]
        norms = {name for name in [*names, family.after_mlp] if name is not None}
        attention, mlp = _child(layer, "self_attn"), _child(layer, "mlp")
        _expect_parts(layer, norms | {"self_attn", "mlp"}, family.idle)
        _expect_parts(attention, {*family.qkv, "o_proj", *(family.head_norms or ())}, frozenset())
        if geometry.key_dim != geometry.value_dim:
            raise UnknownPartError(f"key and value heads differ: {geometry}")
        qkv = self._joined(attention, family.qkv)
        width, head_dim = qkv.out_features, geometry.key_dim
        num_query_heads = width // head_dim - 2 * geometry.num_kv_heads
        if width % head_dim or num_query_heads < 1:
            raise UnknownPartError(f"{width} features for queries, keys and values: {geometry}")
        query_norm = key_norm = None
        if family.head_norms is not None:
            query_norm = self.norm(attention, family.head_norms[0], head_dim)
            key_norm = self.norm(attention, family.head_norms[1], head_dim)
        return Block(
            self._kernels,
            Attention(
                layer=index,
                heads=Heads(num_query_heads, geometry.num_kv_heads, head_dim),
                options=options,
                before=self.norm(layer, family.before_attention, qkv.in_features),
                qkv=qkv,
                output=self._product(_child(attention, "o_proj")),
                after=self._norm_or_none(layer, family.after_attention, qkv.in_features),
                query_norm=query_norm,
                key_norm=key_norm,
            ),
            self.norm(layer, family.before_mlp, qkv.in_features),
            self._feed(mlp),
            self._norm_or_none(layer, family.after_mlp, qkv.in_features),
        )

    def _feed(self, mlp: nn.Module) -> Feed:
        """Build the MLP, or take the layer's own where something of it is unknown."""
        try:
            if type(mlp).__name__ == self._family.experts:
                return self._experts(mlp)
            return self._gated(mlp)
        except UnknownPartError:
            return OwnFeed(mlp)

    def _gated(self, mlp: nn.Module) -> GatedFeed:
        family = self._family
        activation = _activation(getattr(mlp, family.activation, None))
        _expect_parts(mlp, {*family.gate_up, "down_proj"}, frozenset({family.activation}))
        down = self._product(_child(mlp, "down_proj"))
        return GatedFeed(self._kernels, self._joined(mlp, family.gate_up), down, activation)

    def _experts(self, mlp: nn.Module) -> ExpertsFeed:
        """Build experts whose weights are two tensors, [experts, out, in]."""
        _expect_parts(mlp, {"gate", "experts"}, frozenset())
        gate, experts = _child(mlp, "gate"), _child(mlp, "experts")
        _expect_parts(gate, set(), frozenset(), parameters={"weight"})
        _expect_parts(
            experts, set(), frozenset({"act_fn"}), parameters={"gate_up_proj", "down_proj"}
        )
        gate_up, down = cast("Tensor", experts.gate_up_proj), cast("Tensor", experts.down_proj)
        pairs = [
            (self._stored(gate_up.detach()[e]), self._stored(down.detach()[e]))
            for e in range(gate_up.shape[0])
        ]
        return ExpertsFeed(
            self._kernels,
            self._stored(cast("Tensor", gate.weight).detach()),
            pairs,
            _activation(getattr(experts, "act_fn", None)),
            Routing(cast("int", gate.top_k), bool(gate.norm_topk_prob)),
        )

    def _stored(self, weight: Tensor) -> StoredLinear:
        return StoredLinear(self._kernels, self._kernels.store(weight))

    def _joined(self, parent: nn.Module, names: Iterable[str]) -> StoredLinear | JoinedLinear:
        """Store projections of one input as one."""
        linears = [_child(parent, name) for name in names]
        plain = [linear for linear in linears if is_linear(linear)]
        if len(plain) < len(linears) or any(_is_hooked(linear) for linear in linears):
            raise UnknownPartError(f"{names} are not plain linear layers")
        if len({(one.in_features, bias_of(one) is None) for one in plain}) != 1:
            raise UnknownPartError(f"a bias on some of {names}, or inputs of several widths")
        return store(self._kernels, *plain)

    def _product(self, linear: nn.Module) -> Product:
        if _is_hooked(linear):
            raise UnknownPartError("hooks on a linear layer")
        if is_linear(linear):
            return store(self._kernels, linear)
        if isinstance(linear, (SummedLinear, SplitLinear)):
            return linear.over(store(self._kernels, cast("nn.Linear", linear.linear)))
        raise UnknownPartError(f"{type(linear).__name__} in place of a linear layer")

    def norm(self, parent: nn.Module, name: str, features: int) -> Norm:
        """Build an RMS norm.

        Raises:
            UnknownPartError: it is another kind of norm.
        """
        norm = _child(parent, name)
        _expect_parts(norm, set(), frozenset(), parameters={"weight"})
        eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
        weight = cast("Tensor", norm.weight).detach().to(torch.float32, copy=True)
        if not isinstance(eps, float) or weight.shape != (features,):
            raise UnknownPartError(f"{name}: eps {eps!r}, weight {tuple(weight.shape)}")
        return Norm(weight.contiguous(), eps, self._family.plus_one)

    def _norm_or_none(self, parent: nn.Module, name: str | None, features: int) -> Norm | None:
        return None if name is None else self.norm(parent, name, features)


def _child(parent: nn.Module, name: str) -> nn.Module:
    child = getattr(parent, name, None)
    if not isinstance(child, nn.Module):
        raise UnknownPartError(f"{type(parent).__name__} has no {name}")
    return child


def _expect_parts(
    module: nn.Module,
    parts: set[str],
    idle: frozenset[str],
    *,
    parameters: frozenset[str] | set[str] = frozenset(),
) -> None:
    """Refuse a module that holds or does more, or less, than its family tells of."""
    found = {name for name, _ in module.named_children()}
    own = {name for name, _ in module.named_parameters(recurse=False)}
    own |= {name for name, _ in module.named_buffers(recurse=False)}
    if not parts <= found <= parts | idle or own != parameters or _is_hooked(module):
        raise UnknownPartError(
            f"{type(module).__name__}: parts {sorted(found)}, weights {sorted(own)}"
        )


def _is_hooked(module: nn.Module) -> bool:
    """Whether a call does more than the forward of the module's class."""
    hooks: tuple[Any, ...] = (
        module._forward_hooks,  # noqa: SLF001 torch has no other way to ask
        module._forward_pre_hooks,  # noqa: SLF001
    )
    return any(hooks) or "forward" in vars(module)


def _activation(function: object) -> Activation:
    for activation in Activation:
        if type(function) is type(ACT2FN[activation.value]):
            return activation
    raise UnknownPartError(f"activation {function!r:.64}")
