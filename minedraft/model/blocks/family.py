"""The decoder layers that blocks know, as data: which parts a layer has and what each is for.

A table says nothing about arithmetic: `minedraft.model.blocks.proof` compares every block with its
layer, so a row that is wrong, or no longer right, costs speed and no token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class Family:
    """Names of a decoder layer's parts, relative to the layer."""

    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Projections of `self_attn` to queries, keys and values: three, or one for all."""
    gate_up: tuple[str, ...] = ("gate_proj", "up_proj")
    """Projections of `mlp` to gates and ups: two, or one for both."""
    activation: str = "act_fn"
    """Of `mlp`."""
    before_attention: str = "input_layernorm"
    after_attention: str | None = None
    """Norm of what attention adds to the residual."""
    before_mlp: str = "post_attention_layernorm"
    after_mlp: str | None = None
    """Norm of what the MLP adds to the residual."""
    head_norms: tuple[str, str] | None = None
    """Norms of `self_attn` for queries and for keys, per head."""
    plus_one: bool = False
    """Norms multiply by 1 + weight."""
    experts: str | None = None
    """Class of an `mlp` that routes tokens to experts."""
    idle: frozenset[str] = frozenset()
    """Parts of the layer that do nothing in eval mode."""


_LLAMA: Final = Family()
_QWEN3: Final = replace(_LLAMA, head_norms=("q_norm", "k_norm"))
_GEMMA2: Final = replace(
    _LLAMA,
    after_attention="post_attention_layernorm",
    before_mlp="pre_feedforward_layernorm",
    after_mlp="post_feedforward_layernorm",
    plus_one=True,
)
FAMILIES: Final[dict[str, Family]] = {
    "llama.modeling_llama.LlamaDecoderLayer": _LLAMA,
    "mistral.modeling_mistral.MistralDecoderLayer": _LLAMA,
    "qwen2.modeling_qwen2.Qwen2DecoderLayer": _LLAMA,
    "qwen3.modeling_qwen3.Qwen3DecoderLayer": _QWEN3,
    "qwen3_moe.modeling_qwen3_moe.Qwen3MoeDecoderLayer": replace(
        _QWEN3, experts="Qwen3MoeSparseMoeBlock"
    ),
    "phi3.modeling_phi3.Phi3DecoderLayer": replace(
        _LLAMA,
        qkv=("qkv_proj",),
        gate_up=("gate_up_proj",),
        activation="activation_fn",
        idle=frozenset({"resid_attn_dropout", "resid_mlp_dropout"}),
    ),
    "gemma2.modeling_gemma2.Gemma2DecoderLayer": _GEMMA2,
    "gemma3.modeling_gemma3.Gemma3DecoderLayer": replace(_GEMMA2, head_norms=("q_norm", "k_norm")),
}
"""By class of the layer, under `transformers.models`."""


def family_of(layer: nn.Module) -> Family | None:
    """Return the family of a layer; None: no block knows its class."""
    kind = type(layer)
    prefix = "transformers.models."
    if not kind.__module__.startswith(prefix):
        return None
    return FAMILIES.get(f"{kind.__module__.removeprefix(prefix)}.{kind.__qualname__}")
