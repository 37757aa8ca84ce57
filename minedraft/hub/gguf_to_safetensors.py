"""Turns one GGUF file into a Hugging Face directory: bf16 safetensors, config, tokenizer.

It refuses what it was not checked on: other architectures than those of `_ARCHITECTURES`, other
pre-tokenizers than those of `gguf_tokenizer`, and a file with a tensor too many or too few.

Weights are stored as bf16 whatever the run uses. Widening bf16 to fp32 is exact, so fp32 and bf16
runs have the very same weights and differ by arithmetic alone; and rounding to bf16 (2^-9 relative)
is far under the error of four-bit blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from minedraft.errors import ModelError
from minedraft.hub.gguf_tokenizer import save_tokenizer
from minedraft.hub.progress import no_progress
from minedraft.model_files.gguf_names import ROTARY_PAIRS_INTERLEAVED, rotary_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from transformers import PreTrainedConfig, PreTrainedModel

    from minedraft.hub.progress import Progress

_ARCHITECTURES: Final = ("llama", "qwen2")

_DTYPE: Final = torch.bfloat16


def convert(
    gguf_path: Path,
    directory: Path,
    *,
    eos_token_ids: Sequence[int],
    progress: Progress = no_progress,
) -> None:
    """Write the model of a GGUF file to a directory.

    Peak memory is the bf16 model plus one fp32 tensor.

    Args:
        gguf_path: The file.
        directory: Exists and is empty.
        eos_token_ids: Ids that end an answer; the first is the main one.
        progress: Told the tensors done.

    Raises:
        ModelError: The file is none that this conversion was checked on.
    """
    try:
        reader = gguf.GGUFReader(gguf_path)
    except (ValueError, IndexError) as error:
        raise ModelError(f"model {gguf_path} is not a GGUF file: {error}") from error
    architecture = _field(reader, "general.architecture")
    if architecture not in _ARCHITECTURES:
        raise ModelError(
            f"model {gguf_path}: architecture {architecture!r} is not one of {_ARCHITECTURES}"
        )
    config = _read_config(gguf_path)
    vocab_size = len(reader.fields["tokenizer.ggml.tokens"].data)
    if config.vocab_size < vocab_size or max(eos_token_ids) >= vocab_size:
        raise ModelError(
            f"model {gguf_path}: vocabulary of {config.vocab_size} with {vocab_size} tokens "
            f"and EOS ids {tuple(eos_token_ids)}"
        )
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=_DTYPE)
    weights = _read_weights(reader, model, gguf_path, progress)
    save_model(model, weights, directory)
    GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=list(eos_token_ids) if len(eos_token_ids) > 1 else eos_token_ids[0],
        pad_token_id=config.pad_token_id,
    ).save_pretrained(directory)
    progress(f"tokenizer {gguf_path.name}", 0, 1, "items")
    save_tokenizer(reader, gguf_path, directory)
    progress(f"tokenizer {gguf_path.name}", 1, 1, "items")


def save_model(
    model: PreTrainedModel, weights: Mapping[str, torch.Tensor], directory: Path
) -> None:
    """Write config.json and model.safetensors.

    ``save_pretrained`` would do, but it wants the weights in the model and draws its own bar.

    Args:
        model: May be on the meta device; gives class and configuration.
        weights: Under the model's names, without the tied ones.
        directory: Exists.
    """
    config = model.config
    config.architectures = [type(model).__name__]
    config.dtype = next(iter(weights.values())).dtype
    config.save_pretrained(directory)
    path = directory / "model.safetensors"
    save_file(dict(weights), path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors writes for the owner only


def _read_config(gguf_path: Path) -> PreTrainedConfig:
    """Build the configuration, without leftovers of GGUF's spelling."""
    config = AutoConfig.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)
    # GGUF keeps fp32: 9.99999997e-07 is what 1e-06 looks like after that.
    config.rms_norm_eps = float(str(np.float32(config.rms_norm_eps)))
    vars(config).pop("_model_name_or_path", None)  # GGUF's free-text name, no path at all
    return config


def _read_weights(
    reader: gguf.GGUFReader,
    model: PreTrainedModel,
    gguf_path: Path,
    progress: Progress,
) -> dict[str, torch.Tensor]:
    """Dequantise every tensor, under the model's own names."""
    stage = f"convert {gguf_path.name}"
    config = model.config
    architecture = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == config.model_type)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if config.tie_word_embeddings:
        del shapes["lm_head.weight"]
    weights: dict[str, torch.Tensor] = {}
    for done, (name, shape) in enumerate(shapes.items()):
        progress(stage, done, len(shapes), "items")
        stem, suffix = name.rsplit(".", 1)
        tensor = tensors.pop(f"{names.get_name(stem)}.{suffix}", None)
        if tensor is None:
            raise ModelError(f"model {gguf_path} has no tensor for {name}")
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if values.shape != shape:
            found = values.shape
            raise ModelError(f"model {gguf_path}: {name} has shape {found}, expected {shape}")
        if config.model_type in ROTARY_PAIRS_INTERLEAVED and stem.endswith("q_proj"):
            values = values[rotary_order(len(values), config.num_attention_heads)]
        if config.model_type in ROTARY_PAIRS_INTERLEAVED and stem.endswith("k_proj"):
            values = values[rotary_order(len(values), config.num_key_value_heads)]
        weights[name] = torch.tensor(values).to(_DTYPE)
    if tensors:
        odd = sorted(tensors)[:5]
        raise ModelError(f"model {gguf_path}: tensors {odd} have no place in the model")
    progress(stage, len(shapes), len(shapes), "items")
    return weights


def _field(reader: gguf.GGUFReader, key: str) -> object:
    """Return a metadata value; None if the file has none."""
    field = reader.fields.get(key)
    return None if field is None else field.contents()
