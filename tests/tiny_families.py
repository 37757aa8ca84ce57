"""Tiny random models of many families, saved as safetensors, for tests of the paged attention.

Refuses to be realistic: weights are wide (std 0.3) so that windows and soft caps change the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

WINDOW = 16
VOCAB_SIZE = 131

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def _config(kind: type[PreTrainedConfig], **more: Any) -> Callable[[], PreTrainedConfig]:
    return lambda: kind(**{**_COMMON, **more})


FAMILIES: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": _config(LlamaConfig),
    "qwen2": _config(Qwen2Config),
    "qwen3": _config(Qwen3Config),
    "qwen3_moe": _config(
        Qwen3MoeConfig, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "mistral_window": _config(MistralConfig, sliding_window=WINDOW),
    "gemma2_softcap": _config(
        Gemma2Config,
        sliding_window=WINDOW,
        query_pre_attn_scalar=4,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=30.0,
    ),
    "gemma3_window": _config(
        Gemma3TextConfig,
        sliding_window=WINDOW,
        query_pre_attn_scalar=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "phi3": _config(Phi3Config),
}


def save_family(name: str, directory: Path, seed: int = 0) -> Path:
    """Write a random fp32 model of the family `name`."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(FAMILIES[name](), attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    model.save_pretrained(directory)
    return directory


def own_logits(directory: Path, token_ids: list[int], **overrides: Any) -> torch.Tensor:
    """[T, V]: the model's own eager forward; `overrides` change its config first."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(directory)
    for key, value in overrides.items():
        setattr(config, key, value)
    model = AutoModelForCausalLM.from_pretrained(
        directory, config=config, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        return model(torch.tensor([token_ids]), use_cache=False).logits[0]
