"""Writes a tiny model as a GGUF file, as llama.cpp's converter does, with Q8_0 and Q4_K weights.

The gguf library writes the file and Q8_0; Q4_K is quantised here, which that library cannot. Names
and the order of the rows of q and k are spelled out, not taken from what the reader uses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from safetensors.torch import load_file

Array = npt.NDArray[Any]

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

_MORE_NAMES: dict[str, dict[str, str]] = {
    "qwen3": {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"},
    "phi3": {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    "gemma2": {
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
}


def to_gguf(
    directory: Path, kind: str, architecture: str = "llama", **others: str
) -> dict[str, Array]:
    """Replace model.safetensors by model.gguf.

    Args:
        directory: Of a model whose widths are multiples of 256 (Q4_K) or 32 (Q8_0).
        kind: ``Q8_0`` or ``Q4_K``, of the projections; or what is not quantised.
        architecture: What the file says that it is.
        **others: Types of projections that have another one: ``v_proj="Q5_0"``.

    Returns:
        Projection to the weight that it stands for, [N, K] float64, in transformers' order.
    """
    config = json.loads((directory / "config.json").read_text())
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    heads = heads if architecture == "llama" else {}
    names = _NAMES | _MORE_NAMES.get(architecture, {})
    writer = gguf.GGUFWriter(directory / "model.gguf", architecture)
    writer.add_uint32(f"{architecture}.block_count", config["num_hidden_layers"])
    writer.add_token_list([f"<{i}>" for i in range(config["vocab_size"])])
    meant: dict[str, Array] = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        weight = tensor.float().numpy()
        stem, _, suffix = name.rpartition(".")
        last = stem.rpartition(".")[2]
        called = f"{_gguf_name(stem, names)}.{suffix}"
        if not last.endswith("_proj") or suffix == "bias":
            is_shifted = architecture == "gemma2" and last.endswith("norm")
            writer.add_tensor(called, weight + 1 if is_shifted else weight)
            continue
        rows = _interleaved(len(weight), heads[last]) if last in heads else np.arange(len(weight))
        own = others.get(last, kind)
        content, served = _blocks(weight[rows], own)
        back = np.empty_like(served)
        back[rows] = served
        meant[name] = back.astype(np.float64)
        writer.add_tensor(called, content, raw_dtype=gguf.GGMLQuantizationType[own])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (directory / "model.safetensors").unlink()
    return meant


def _gguf_name(stem: str, names: dict[str, str]) -> str:
    if stem in names:
        return names[stem]
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{names[rest]}"


def _interleaved(rows: int, heads: int) -> Array:
    """Rows in llama.cpp's order: of each head first, middle, second, middle + 1, ..."""
    width = rows // heads
    return np.array(
        [h * width + half * width // 2 + i
         for h in range(heads) for i in range(width // 2) for half in (0, 1)]
    )  # fmt: skip


def _blocks(weight: Array, kind: str) -> tuple[Array, Array]:
    """The bytes of a tensor and what they stand for."""
    if kind == "F32":
        return weight, weight
    raw = gguf.GGMLQuantizationType[kind]
    content = quantise_q4_k(weight) if kind == "Q4_K" else gguf.quantize(weight, raw)
    return content, gguf.dequantize(content, raw)


def quantise_q4_k(weight: Array) -> Array:
    """[N, K] float32 -> [N, K / 256 * 144] uint8."""
    groups = weight.astype(np.float64).reshape(len(weight), -1, 8, 32)
    low = np.minimum(groups.min(-1), 0)
    scales, minima = (groups.max(-1) - low) / 15, -low
    d = (scales.max(-1) / 63).astype(np.float16)
    d_min = (minima.max(-1) / 63).astype(np.float16)
    scale = np.rint(scales / np.maximum(d[..., None].astype(float), 1e-9)).clip(0, 63).astype(int)
    least = np.rint(minima / np.maximum(d_min[..., None].astype(float), 1e-9)).clip(0, 63)
    least = least.astype(int)
    step = np.maximum(d[..., None].astype(float) * scale, 1e-9)[..., None]
    codes = np.rint((groups + (d_min[..., None].astype(float) * least)[..., None]) / step)
    codes = codes.clip(0, 15).astype(np.uint8)
    packed = np.zeros((*groups.shape[:2], 12), np.uint8)
    for j in range(4):
        packed[..., j] = (scale[..., j] & 63) | (scale[..., j + 4] >> 4 << 6)
        packed[..., j + 4] = (least[..., j] & 63) | (least[..., j + 4] >> 4 << 6)
        packed[..., j + 8] = (scale[..., j + 4] & 15) | ((least[..., j + 4] & 15) << 4)
    runs = codes[..., 0::2, :] | (codes[..., 1::2, :] << 4)
    parts = [
        np.ascontiguousarray(d[..., None]).view(np.uint8),
        np.ascontiguousarray(d_min[..., None]).view(np.uint8),
        packed,
        runs.reshape(*runs.shape[:2], 128),
    ]
    return np.concatenate(parts, axis=-1).reshape(len(weight), -1)
