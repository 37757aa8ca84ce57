"""Decides from the config and a probe pass whether the paged attention can serve a model.

Refuses by name; numbers are compared in `minedraft.model.self_test`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from minedraft.errors import ModelError
from minedraft.model.kv_pool import LayerGeometry

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel

    from minedraft.model.attention import AttentionOptions

_SERVED_LAYERS = frozenset({"full_attention", "sliding_attention", "dense", "sparse", "moe"})
_REFUSED_FIELDS = (
    ("is_encoder_decoder", "encoder and decoder"),
    ("num_kv_shared_layers", "layers that share keys and values"),
    ("use_bidirectional_attention", "attention that looks ahead"),
    ("attention_chunk_size", "chunked attention"),
    ("alibi", "ALiBi position bias"),
)
_LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})
"""Their frequencies depend on the longest sequence of the batch, so batch mates would change each
other's output; up to the original length they do not."""


def refuse_config(path: Path, config: PreTrainedConfig) -> None:
    """Refuse an architecture by its config.

    Raises:
        ModelError: Names the field and the value.
    """
    for field, meaning in _REFUSED_FIELDS:
        value = getattr(config, field, None)
        if value:
            raise ModelError(f"model {path}: {field}={value!r} ({meaning}) cannot be served")
    layer_types = getattr(config, "layer_types", None) or ()
    if not isinstance(layer_types, (list, tuple)):
        raise ModelError(f"model {path}: config.json: layer_types={layer_types!r:.64} is no list")
    for layer_type in layer_types:
        if not isinstance(layer_type, str) or layer_type not in _SERVED_LAYERS:
            raise ModelError(f"model {path}: layer type {layer_type!r} cannot be served")


def max_model_len(path: Path, config: PreTrainedConfig) -> int:
    """Return the most positions of a sequence.

    Raises:
        ModelError: The config does not say.
    """
    length = getattr(config, "max_position_embeddings", None)
    if not isinstance(length, int) or length < 1:
        raise ModelError(f"model {path}: config.json: max_position_embeddings={length!r}")
    rope = getattr(config, "rope_parameters", None) or {}
    if not isinstance(rope, dict):
        raise ModelError(f"model {path}: config.json: rope_parameters={rope!r:.64} is no object")
    kinds = rope.values() if all(isinstance(v, dict) for v in rope.values()) else [rope]
    for kind in kinds:
        if kind.get("rope_type") in _LENGTH_DEPENDENT_ROPE:
            original = (
                kind.get("original_max_position_embeddings")
                or getattr(config, "original_max_position_embeddings", None)
                or length
            )
            if not isinstance(original, int) or original < 1:
                raise ModelError(
                    f"model {path}: config.json: original_max_position_embeddings={original!r:.64}"
                )
            length = min(length, original)
    return length


class GeometryProbe:
    """An AttentionStep that attends to nothing and records what each layer asks for."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerGeometry] = {}
        self.options: dict[int, AttentionOptions] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Record the layer; see AttentionStep."""
        if layer in self.layers:
            raise ModelError(f"attention layer {layer} attends twice in one pass")
        if query.shape[0] % key.shape[0] or key.shape[1] != query.shape[1]:
            raise ModelError(
                f"attention layer {layer}: query {tuple(query.shape)} and key {tuple(key.shape)} "
                "do not fit one another"
            )
        self.layers[layer] = LayerGeometry(key.shape[0], key.shape[2], value.shape[2])
        self.options[layer] = options
        return value.new_zeros(query.shape[1], query.shape[0], value.shape[2])


def probe(path: Path, model: PreTrainedModel, config: PreTrainedConfig) -> GeometryProbe:
    """Run two tokens through the model to learn the shape of every layer's keys and values.

    Args:
        path: Of the model, for messages.
        model: Loaded with our attention.
        config: Its text config.

    Raises:
        ModelError: A layer does not go through the attention interface, or asks for an option
            that is not supported.
    """
    found = GeometryProbe()
    device = next(model.parameters()).device
    try:
        with torch.inference_mode():
            model(
                input_ids=torch.zeros(1, 2, dtype=torch.int64, device=device),
                position_ids=torch.arange(2, device=device)[None],
                use_cache=False,
                logits_to_keep=torch.tensor([1], device=device),
                paged=found,
            )
    except ModelError as err:
        raise ModelError(f"model {path}: {err}") from err
    except Exception as err:
        raise ModelError(f"model {path}: cannot run packed tokens: {err}") from err
    expected = config.num_hidden_layers
    if sorted(found.layers) != list(range(expected)):
        raise ModelError(
            f"model {path}: {len(found.layers)} of {expected} layers go through transformers' "
            f"attention interface; {type(model).__name__} cannot be served"
        )
    return found
