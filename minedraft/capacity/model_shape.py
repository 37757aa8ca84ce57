"""The sizes of a model that decide what a forward pass reads and computes. Pure.

Dense decoders only: attention with grouped heads and a gated MLP, as in the Llama and Qwen
families. What is priced otherwise (experts, latent attention) is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.capacity.words import short
from minedraft.errors import ModelError
from minedraft.model_files.json_file import read_object
from minedraft.model_files.model_config import check_config

if TYPE_CHECKING:
    from pathlib import Path

    from minedraft.model_files.json_file import JsonObject

BF16: Final = 2
"""Bytes of a value of embeddings, activations, keys and values."""
BYTES_PER_WEIGHT: Final = {"bf16": 2.0, "fp8": 1.0, "int4": 0.53}
"""Of the layers. Four bits with a 16-bit scale and a zero per group of 128: 0.53."""
_OTHERWISE: Final = (
    "num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank", "layer_types",
)  # fmt: skip
"""Fields of models whose steps cost otherwise."""
_FULL: Final = "full_attention"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """See the module docstring."""

    name: str
    hidden: int
    intermediate: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab: int
    is_tied: bool
    """Whether embedding and head share their weights."""
    max_len: int
    """Longest context, in tokens."""
    weights: str = "bf16"
    """How the layers are stored: a key of `BYTES_PER_WEIGHT`."""

    @property
    def layer_params(self) -> int:
        """Weights of all layers."""
        attention = self.hidden * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        return self.num_layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def head_params(self) -> int:
        """Weights of the head."""
        return self.hidden * self.vocab

    @property
    def num_params(self) -> int:
        """All weights, without norms."""
        return self.layer_params + self.head_params * (1 if self.is_tied else 2)

    @property
    def layer_bytes(self) -> float:
        """Bytes of the layers as stored."""
        return self.layer_params * BYTES_PER_WEIGHT[self.weights]

    @property
    def read_bytes(self) -> float:
        """Bytes that a pass reads of weights: layers and head; of the embedding a few rows."""
        return self.layer_bytes + self.head_params * BF16

    @property
    def held_bytes(self) -> float:
        """Bytes of all weights."""
        return self.layer_bytes + self.head_params * BF16 * (1 if self.is_tied else 2)

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * BF16


def shape_of_config(path: Path, name: str = "") -> ModelShape:
    """Read the shape of a model from its config.json.

    Args:
        path: The file, or its directory.
        name: What to call it; empty: the directory's name.

    Raises:
        ModelError: there is none, a field is missing or out of range, or such models are not
            priced; names the file and the field.
    """
    file = path / "config.json" if path.is_dir() else path
    config = read_object(file)
    if config is None:
        raise ModelError(f"{file}: no such file")
    check_config(config)
    part = config.part("text_config") or config
    for field in _OTHERWISE:
        value = part.values.get(field)
        if field == "layer_types" and set(part.array(field)) <= {_FULL}:
            continue
        if value:
            raise ModelError(
                f"{file}: {part.name(field)}={short(str(value))}: only dense models with full "
                "attention have a roofline here; give measured costs with --costs"
            )
    hidden, heads = _size(part, "hidden_size"), _size(part, "num_attention_heads")
    shape = ModelShape(
        name=name or file.resolve().parent.name,
        hidden=hidden,
        intermediate=_size(part, "intermediate_size"),
        num_layers=_size(part, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=_size(part, "num_key_value_heads", heads),
        head_dim=_size(part, "head_dim", max(hidden // heads, 1)),
        vocab=_size(part, "vocab_size"),
        is_tied=config.flag("tie_word_embeddings", part.flag("tie_word_embeddings", False)),
        max_len=_size(part, "max_position_embeddings"),
        weights=_weights(config),
    )
    if shape.num_heads % shape.num_kv_heads:
        part.refuse("num_key_value_heads", f"a divisor of num_attention_heads, {heads}")
    return shape


def _size(config: JsonObject, field: str, default: int | None = None) -> int:
    value = config.values.get(field)
    if value is None and default is not None:
        return default
    if not isinstance(value, int):  # its range was checked
        config.refuse(field, "a whole number")
    return value


def _weights(config: JsonObject) -> str:
    """How a quantised checkpoint stores its layers, as far as its config says."""
    quantised = config.part("quantization_config")
    if quantised is None:
        return "bf16"
    bits = quantised.values.get("bits", 8 if quantised.values.get("quant_method") == "fp8" else 4)
    return "fp8" if bits == 8 else "int4"  # noqa: PLR2004
