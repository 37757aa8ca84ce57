"""Quantises tiny models in every format that is served, from the formats' public definitions.

Refuses to share code with the readers: each format is written here with numpy and plain shifts, and
what it stands for is computed in float64. `quantise` returns those weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file

Array = npt.NDArray[Any]
Tensors = dict[str, torch.Tensor]
Quantised = tuple[Tensors, Array]
"""The pieces of a layer by suffix, and the weight they stand for, [N, K] float64."""

GROUP = 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which output the i-th four bits of a word belong to."""


def quantise(directory: Path, form: str) -> dict[str, Array]:
    """Quantise the projections of a model, in place.

    Args:
        directory: With model.safetensors, float32.
        form: One of `FORMS`.

    Returns:
        Tensor name to the weight that it stands for now.
    """
    settings, write = FORMS[form]
    file = directory / "model.safetensors"
    tensors: Tensors = {}
    meant: dict[str, Array] = {}
    for name, tensor in load_file(file).items():
        if not name.endswith("_proj.weight"):
            tensors[name] = tensor
            continue
        pieces, meant[name] = write(tensor.double().numpy())
        stem = name.removesuffix("weight")
        tensors |= {stem + suffix: piece.contiguous() for suffix, piece in pieces.items()}
    save_file(tensors, file, metadata={"format": "pt"})
    edit_config(directory, quantization_config=settings)
    return meant


def edit_config(directory: Path, **fields: Any) -> None:
    """Change fields of config.json."""
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def edit_tensors(directory: Path, **changes: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change every tensor whose last name is a key."""
    file = directory / "model.safetensors"
    tensors = load_file(file)
    for name, tensor in tensors.items():
        change = changes.get(name.rpartition(".")[2])
        if change is not None:
            tensors[name] = change(tensor).contiguous()
    save_file(tensors, file, metadata={"format": "pt"})


def dequantise(directory: Path, meant: dict[str, Array], into: Path) -> Path:
    """Write the same model with the weights that the quantised ones stand for, in float32."""
    into.mkdir()
    for file in directory.iterdir():
        if file.suffix not in {".safetensors", ".gguf"}:
            (into / file.name).write_bytes(file.read_bytes())
    config = json.loads((directory / "config.json").read_text())
    config.pop("quantization_config", None)
    (into / "config.json").write_text(json.dumps(config))
    stored = directory / "model.safetensors"
    plain = load_file(stored) if stored.exists() else {}
    stems = tuple(name.removesuffix("weight") for name in meant)
    tensors = {n: t for n, t in plain.items() if n.endswith("bias") or not n.startswith(stems)}
    tensors |= {n: torch.from_numpy(weight).float().contiguous() for n, weight in meant.items()}
    save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})
    return into


def grouped(weight: Array, bits: int, group: int, *, symmetric: bool) -> tuple[Array, Array, Array]:
    """Round to nearest: codes [N, K], zero points [N, G], scales [N, G] that float16 has."""
    parts = weight.reshape(weight.shape[0], -1, group)
    most = 2**bits - 1
    if symmetric:
        scales = np.abs(parts).max(-1) / (most // 2)
        zeros = np.full(scales.shape, 2 ** (bits - 1))
    else:
        low, high = np.minimum(parts.min(-1), 0), np.maximum(parts.max(-1), 0)
        scales = (high - low) / most
        zeros = np.clip(np.rint(-low / scales), 1, most).astype(int)
    scales = scales.astype(np.float16).astype(np.float64)
    codes = np.rint(parts / scales[..., None]) + zeros[..., None]
    return np.clip(codes, 0, most).astype(int).reshape(weight.shape), zeros.astype(int), scales


def widened(codes: Array, zeros: Array, scales: Array, index: Array) -> Array:
    """(code - zero) * scale, with the group of every input."""
    return (codes - zeros[:, index]) * scales[:, index]


def in_bfloat16(weight: Array) -> Array:
    """As weights are served that no kernel keeps packed."""
    return torch.from_numpy(weight).float().bfloat16().double().numpy()


def in_words(codes: Array, bits: int) -> Array:
    """[..., n] -> [..., n * bits / 32] int32, the first code in the lowest bits."""
    per_word = 32 // bits
    padded = np.zeros((*codes.shape[:-1], -(-codes.shape[-1] // per_word) * per_word), np.uint32)
    padded[..., : codes.shape[-1]] = codes
    words = np.zeros((*codes.shape[:-1], padded.shape[-1] // per_word), np.uint32)
    for place in range(per_word):
        words |= padded[..., place::per_word] << np.uint32(bits * place)
    return words.view(np.int32)


def _gptq(bits: int = 4, *, less: int = 1, act_order: bool = False) -> Callable[[Array], Quantised]:
    def write(weight: Array) -> Quantised:
        inputs = weight.shape[1]
        order = np.random.default_rng(0).permutation(inputs) if act_order else np.arange(inputs)
        index = np.empty(inputs, int)
        index[order] = np.arange(inputs) // GROUP  # the group of each input
        sorted_codes, zeros, scales = grouped(weight[:, order], bits, GROUP, symmetric=False)
        codes = np.empty_like(sorted_codes)
        codes[:, order] = sorted_codes
        pieces = {
            "qweight": torch.from_numpy(in_words(codes, bits).T.copy()),
            "qzeros": torch.from_numpy(in_words(zeros.T - less, bits)),
            "scales": torch.from_numpy(scales.T.copy()).half(),
            "g_idx": torch.from_numpy(index).int(),
        }
        meant = widened(codes, zeros, scales, index)
        return pieces, in_bfloat16(meant) if act_order else meant

    return write


def _awq(weight: Array) -> Quantised:
    codes, zeros, scales = grouped(weight, 4, GROUP, symmetric=False)

    def along_outputs(numbers: Array) -> torch.Tensor:
        blocks = numbers.T.reshape(numbers.shape[1], -1, 8)[..., list(AWQ_ORDER)]
        return torch.from_numpy(in_words(blocks.reshape(numbers.shape[1], -1), 4))

    pieces = {
        "qweight": along_outputs(codes),
        "qzeros": along_outputs(zeros),
        "scales": torch.from_numpy(scales.T.copy()).half(),
    }
    return pieces, widened(codes, zeros, scales, np.arange(weight.shape[1]) // GROUP)


def _packed(bits: int, *, symmetric: bool) -> Callable[[Array], Quantised]:
    def write(weight: Array) -> Quantised:
        codes, zeros, scales = grouped(weight, bits, GROUP, symmetric=symmetric)
        pieces = {
            "weight_packed": torch.from_numpy(in_words(codes, bits)),
            "weight_scale": torch.from_numpy(scales).half(),
            "weight_shape": torch.tensor(weight.shape),
        }
        if not symmetric:
            pieces["weight_zero_point"] = torch.from_numpy(in_words(zeros.T, bits).T.copy())
        return pieces, widened(codes, zeros, scales, np.arange(weight.shape[1]) // GROUP)

    return write


def _int8(weight: Array) -> Quantised:
    codes, zeros, scales = grouped(weight, 8, weight.shape[1], symmetric=True)
    pieces = {
        "weight": torch.from_numpy(codes - 128).to(torch.int8),
        "weight_scale": torch.from_numpy(scales).float(),
    }
    return pieces, widened(codes, zeros, scales, np.zeros(weight.shape[1], int))


def _fp8(rows: int, columns: int, suffix: str) -> Callable[[Array], Quantised]:
    def write(weight: Array) -> Quantised:
        scales = np.ones((-(-weight.shape[0] // rows), -(-weight.shape[1] // columns)))
        codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
        meant = np.empty_like(weight)
        for i, j in np.ndindex(*scales.shape):
            part = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            scales[i, j] = np.float32(np.abs(weight[part]).max() / 448)
            codes[part] = torch.from_numpy(weight[part] / scales[i, j]).to(torch.float8_e4m3fn)
            meant[part] = codes[part].double().numpy() * scales[i, j]
        return {"weight": codes, suffix: torch.from_numpy(scales).float()}, in_bfloat16(meant)

    return write


def compressed(written: str, **weights: Any) -> dict[str, Any]:
    """Settings of compressed-tensors."""
    group = {"targets": ["Linear"], "weights": {"type": "int", "dynamic": False} | weights}
    return {
        "quant_method": "compressed-tensors",
        "format": written,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group | {"input_activations": None}},
    }


_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False}
_PACKED = {"strategy": "group", "group_size": GROUP}
FORMS: dict[str, tuple[dict[str, Any], Callable[[Array], Quantised]]] = {
    "gptq": (_GPTQ, _gptq()),
    "gptq_v2": (_GPTQ | {"checkpoint_format": "gptq_v2"}, _gptq(less=0)),
    "gptq_int8": (_GPTQ | {"bits": 8}, _gptq(8)),
    "gptq_act_order": (_GPTQ | {"desc_act": True}, _gptq(act_order=True)),
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"},
        _awq,
    ),
    "fp8": (
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [48, 40]},
        _fp8(48, 40, "weight_scale_inv"),
    ),
    "ct_int4": (compressed("pack-quantized", num_bits=4, **_PACKED), _packed(4, symmetric=True)),
    "ct_int4_zeros": (
        compressed("pack-quantized", num_bits=4, symmetric=False, **_PACKED),
        _packed(4, symmetric=False),
    ),
    "ct_int8_packed": (
        compressed("pack-quantized", num_bits=8, **_PACKED),
        _packed(8, symmetric=True),
    ),
    "ct_int8": (compressed("int-quantized", num_bits=8, strategy="channel"), _int8),
    "ct_fp8": (
        compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
        _fp8(1, 1 << 20, "weight_scale"),
    ),
    "ct_fp8_blocks": (
        compressed(
            "float-quantized", num_bits=8, type="float", strategy="block", block_structure=[48, 40]
        ),
        _fp8(48, 40, "weight_scale"),
    ),
}
DENSE_FORMS = frozenset({"gptq_act_order", "fp8", "ct_fp8", "ct_fp8_blocks"})
"""Those that no kernel keeps packed."""
