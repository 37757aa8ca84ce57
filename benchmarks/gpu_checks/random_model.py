"""Llamas of real size with random weights, written to disk as a checkpoint is. No tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STD = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    max_len: int = 4096

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads

    @property
    def num_parameters(self) -> int:
        """All of them."""
        return sum(math_product(shape) for _, shape in self.tensors())

    def kv_bytes(self, tokens: int) -> int:
        """Of keys and values in bf16."""
        return tokens * self.layers * 2 * self.kv_heads * self.head_dim * 2

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes, as transformers has them."""
        yield "model.embed_tokens.weight", (self.vocab, self.hidden)
        for layer in range(self.layers):
            yield from self.layer(f"model.layers.{layer}.")
        yield "model.norm.weight", (self.hidden,)
        yield "lm_head.weight", (self.vocab, self.hidden)

    def layer(self, prefix: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """One decoder layer's."""
        kv = self.kv_heads * self.head_dim
        for name, rows in (("q", self.hidden), ("k", kv), ("v", kv), ("o", self.hidden)):
            yield f"{prefix}self_attn.{name}_proj.weight", (rows, self.hidden)
        for name in ("gate", "up"):
            yield f"{prefix}mlp.{name}_proj.weight", (self.intermediate, self.hidden)
        yield f"{prefix}mlp.down_proj.weight", (self.hidden, self.intermediate)
        for name in ("input", "post_attention"):
            yield f"{prefix}{name}_layernorm.weight", (self.hidden,)


SHAPE_1_5B = Shape(1536, 8960, 28, 12, 2, 151_936)
SHAPE_7B = Shape(4096, 14_336, 32, 32, 8, 32_000)
SHAPE_TINY = Shape(256, 512, 2, 4, 2, 1000)


def math_product(shape: tuple[int, ...]) -> int:
    """Elements of a tensor."""
    product = 1
    for size in shape:
        product *= size
    return product


def write_random_llama(directory: Path, shape: Shape, device: str) -> None:
    """Write config.json and bf16 safetensors, a shard a few layers.

    Args:
        directory: Made if missing.
        shape: Sizes.
        device: Where the random numbers are drawn; a GPU is much faster.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "bfloat16",
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": shape.max_len,
        "mlp_bias": False,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": shape.vocab,
    }
    (directory / "config.json").write_text(json.dumps(config))
    generator = torch.Generator(device).manual_seed(0)
    where: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    tensors = list(shape.tensors())
    for index, (name, size) in enumerate(tensors):
        if len(size) == 1:
            shard[name] = torch.ones(size, dtype=torch.bfloat16)
        else:
            drawn = torch.empty(size, dtype=torch.bfloat16, device=device)
            shard[name] = drawn.normal_(0, _STD, generator=generator).cpu()
        is_full = sum(tensor.nbytes for tensor in shard.values()) > 2 * 2**30
        if is_full or index == len(tensors) - 1:
            file = f"model-{len(set(where.values())) + 1:05d}.safetensors"
            save_file(shard, directory / file, metadata={"format": "pt"})
            where |= dict.fromkeys(shard, file)
            shard = {}
    index_of = {"metadata": {}, "weight_map": where}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index_of))
