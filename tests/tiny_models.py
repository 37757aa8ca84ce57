"""Tiny random models on disk for tests: weights, config and a byte-level BPE tokenizer.

Refuses to download anything and imports no transformers: what a test loads is written here, from
a seed, in a few milliseconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 300
"""Tokenizer and embedding size of `make_tiny_llama` unless told otherwise."""
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS_TOKEN_ID, EOS_TOKEN_ID = 1, 2
SMALLEST_TOKENIZER = 256 + len(SPECIAL_TOKENS)
"""A byte-level vocabulary cannot be smaller; below it `make_tiny_llama` writes no tokenizer."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_CORPUS = (
    "the quick brown fox jumps over the lazy dog and then the other dogs run after the fox",
    "she sells sea shells on the shore where there is sand and the waves are strong in winter",
    "a model drafts tokens and another verifies them in one step so that the answer comes sooner",
    "def answer(question): return the thing that there is, then, in other words, the rest of it",
)
_INIT_STD = 0.3
"""Wide enough that greedy chains wander instead of repeating one token (checked by a test)."""


def make_tiny_llama(
    directory: Path | str,
    *,
    vocab_size: int = VOCAB_SIZE,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    max_len: int = 512,
    tokenizer_size: int | None = None,
) -> Path:
    """Write a random Llama with fp32 weights and a tokenizer.

    Args:
        directory: Made if missing; files in it are overwritten.
        vocab_size: Rows of the embedding and of the (untied) head.
        seed: Of the weights. The tokenizer does not depend on it.
        hidden: Model width; `heads` must divide it.
        layers: Decoder layers.
        heads: Query heads.
        kv_heads: Key/value heads; must divide `heads`.
        max_len: `max_position_embeddings`.
        tokenizer_size: Entries of the tokenizer; None: `vocab_size`. Smaller gives a padded
            embedding; 0, or a vocabulary under 259, gives a directory without a tokenizer.

    Returns:
        `directory` as a Path.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": min(BOS_TOKEN_ID, vocab_size - 1),
        "dtype": "float32",
        "eos_token_id": min(EOS_TOKEN_ID, vocab_size - 1),
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": _INIT_STD,
        "intermediate_size": 2 * hidden,
        "max_position_embeddings": max_len,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "vocab_size": vocab_size,
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    save_file(
        _llama_weights(config, seed), directory / "model.safetensors", metadata={"format": "pt"}
    )
    size = vocab_size if tokenizer_size is None else tokenizer_size
    if size >= SMALLEST_TOKENIZER:
        write_tokenizer(directory, size, max_len)
    return directory


def write_tokenizer(directory: Path, size: int = VOCAB_SIZE, max_len: int = 512) -> None:
    """Write tokenizer.json and tokenizer_config.json with exactly `size` entries (259..~400)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    if tokenizer.get_vocab_size() != size:
        raise ValueError(f"corpus too small for {size} entries: {tokenizer.get_vocab_size()}")
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "bos_token": SPECIAL_TOKENS[BOS_TOKEN_ID],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": SPECIAL_TOKENS[EOS_TOKEN_ID],
        "model_max_length": max_len,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": SPECIAL_TOKENS[0],
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))


def _llama_weights(config: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * _INIT_STD

    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    weights = {
        "model.embed_tokens.weight": normal(vocab, hidden),
        "model.norm.weight": torch.ones(hidden),
        "lm_head.weight": normal(vocab, hidden),
    }
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        weights |= {
            f"{layer}.input_layernorm.weight": torch.ones(hidden),
            f"{layer}.post_attention_layernorm.weight": torch.ones(hidden),
            f"{layer}.self_attn.q_proj.weight": normal(hidden, hidden),
            f"{layer}.self_attn.k_proj.weight": normal(keys, hidden),
            f"{layer}.self_attn.v_proj.weight": normal(keys, hidden),
            f"{layer}.self_attn.o_proj.weight": normal(hidden, hidden),
            f"{layer}.mlp.gate_proj.weight": normal(inner, hidden),
            f"{layer}.mlp.up_proj.weight": normal(inner, hidden),
            f"{layer}.mlp.down_proj.weight": normal(hidden, inner),
        }
    return weights
