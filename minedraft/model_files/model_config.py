"""Checks config.json of a model directory: bounded numbers, and nothing that selects code.

Refuses by name what would choose code or files, in every part of the file. Quantisation is for
`quantisation_config`; whether the architecture can be served is for `minedraft.model.architecture`.
Pure: takes what was read.
"""

from __future__ import annotations

from typing import Final

from minedraft.errors import ModelError
from minedraft.model_files.json_file import JsonObject, is_integer, refusal
from minedraft.types import MAX_MODEL_LEN, MAX_VOCAB_SIZE

_SELECTS_CODE: Final = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_internal",
        "_experts_implementation",
        "_experts_implementation_internal",
        "attn_implementation",
        "experts_implementation",
        "kernel_config",
        "transformers_weights",
        "trust_remote_code",
        "use_kernels",
    }
)
"""Fields that make transformers import, download or open what the author of the model chose."""
_LARGEST: Final = {
    "head_dim": 1 << 12,
    "hidden_size": 1 << 17,
    "intermediate_size": 1 << 20,
    "kv_lora_rank": 1 << 16,
    "max_position_embeddings": MAX_MODEL_LEN,
    "moe_intermediate_size": 1 << 20,
    "n_embd": 1 << 17,
    "n_head": 1 << 12,
    "n_inner": 1 << 20,
    "n_layer": 1 << 10,
    "n_positions": MAX_MODEL_LEN,
    "n_routed_experts": 1 << 13,
    "num_attention_heads": 1 << 12,
    "num_experts": 1 << 13,
    "num_experts_per_tok": 1 << 13,
    "num_hidden_layers": 1 << 10,
    "num_key_value_heads": 1 << 12,
    "num_local_experts": 1 << 13,
    "q_lora_rank": 1 << 16,
    "vocab_size": MAX_VOCAB_SIZE,
}
"""Largest value of each size: ten times and more what the largest published models have."""
_MAY_BE_NONE: Final = frozenset(name for name in _LARGEST if "expert" in name or "lora" in name)
"""Sizes that are 0 where a model has none of it."""


def check_config(config: JsonObject) -> None:
    """Refuse a bad config.json before any code uses it.

    Raises:
        ModelError: Names the file, the field, what was found and what is wanted.
    """
    if not config.text("model_type"):
        config.refuse("model_type", "the name of an architecture")
    config.part("text_config")
    _check_part(config)


def vocabulary_and_width(config: JsonObject) -> tuple[int | None, int | None]:
    """Return rows and columns of the embedding, if config.json has them."""
    parts = [part for part in (config.part("text_config"), config) if part is not None]

    def first(*names: str) -> int | None:
        found = (part.values.get(name) for name in names for part in parts)
        return next((value for value in found if is_integer(value, 1, 1 << 62)), None)

    return first("vocab_size"), first("hidden_size", "n_embd")


def num_layers(config: JsonObject) -> int:
    """Return the number of layers in config.json; 0 if it has none."""
    for part in (config.part("text_config"), config):
        for name in ("num_hidden_layers", "n_layer"):
            if part is not None and is_integer(part.values.get(name), 1, 1 << 62):
                return int(part.values[name])
    return 0


def _check_part(part: JsonObject) -> None:
    for field, value in part.values.items():
        if field == "auto_map" and value:
            raise ModelError(
                f"{part.path}: {part.name(field)} is there: the model needs code of its own, and "
                "remote code is never run; want none"
            )
        if field in _SELECTS_CODE and value is not None:
            raise refusal(part.path, part.name(field), value, "none: it would select code")
        if field in _LARGEST and value is not None:
            for number in value if isinstance(value, list) else [value]:
                low = int(field not in _MAY_BE_NONE)
                if not is_integer(number, low, _LARGEST[field]):
                    wanted = f"a whole number from {low} to {_LARGEST[field]}"
                    raise refusal(part.path, part.name(field), number, wanted)
        if field == "layer_types" and not all(isinstance(kind, str) for kind in part.array(field)):
            part.refuse(field, "a list of kinds of layers")
        if isinstance(value, dict):
            _check_part(JsonObject(part.path, value, part.name(field)))
