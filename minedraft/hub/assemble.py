"""Makes a complete draft model: its own layers, the target's embedding, head and tokenizer.

It refuses layers that do not fit the target: another hidden size, another vocabulary, a tensor too
many or too few. The embedding is copied, because whatever loads a model wants a complete directory.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from minedraft.errors import ModelError
from minedraft.hub.gguf_to_safetensors import save_model
from minedraft.model_files.json_file import one_line, read_object
from minedraft.model_files.model_config import check_config
from minedraft.model_files.quantisation_config import CONFIG_FIELD, read_quantisation
from minedraft.model_files.weights import read_header, read_index

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
)
_SHARED: Final = ("model.embed_tokens.weight", "lm_head.weight")
"""Tensors of the target; the second exists only where it is not tied to the first."""


def assemble(layers_dir: Path, target_dir: Path, directory: Path) -> None:
    """Write layers, the target's embedding and the target's tokenizer to a directory.

    Args:
        layers_dir: config.json and model.safetensors with the layers and the final norm.
        target_dir: A complete model directory.
        directory: Exists and is empty.

    Raises:
        ModelError: The two do not fit; the message names the directory and what differs.
    """
    config, target = _config(layers_dir), _config(target_dir)
    for name in ("model_type", "hidden_size", "vocab_size", "tie_word_embeddings"):
        ours, theirs = getattr(config, name), getattr(target, name)
        if ours != theirs:
            raise ModelError(f"drafter {layers_dir}: {name} is {ours}, the target's is {theirs}")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=target.dtype)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    shared = [name for name in _SHARED if name in shapes]
    if target.tie_word_embeddings:
        shared.remove("lm_head.weight")
    own = shapes.keys() - set(_SHARED)
    found = tensor_files(layers_dir)
    if found.keys() != own:
        odd = sorted(found.keys() ^ own)
        raise ModelError(f"drafter {layers_dir}: tensors {odd[:5]} are missing or have no place")
    weights = {**read_tensors(layers_dir, own), **read_tensors(target_dir, shared)}
    for name, value in weights.items():
        if tuple(value.shape) != shapes[name]:
            raise ModelError(
                f"drafter {layers_dir}: {name} has shape {tuple(value.shape)}, "
                f"expected {shapes[name]}"
            )
        weights[name] = value.to(target.dtype)
    save_model(model, weights, directory)
    for file in _TOKENIZER_FILES:
        if (target_dir / file).exists():
            shutil.copyfile(target_dir / file, directory / file)


def tensor_files(directory: Path) -> dict[str, Path]:
    """Map each tensor to its safetensors file, sharded or not.

    Raises:
        ModelError: There is no safetensors file, or not all of one.
    """
    names = read_index(directory)
    if names is not None:
        return {name: directory / file for name, file in names.items()}
    single = directory / "model.safetensors"
    if not single.exists():
        raise ModelError(f"model {directory} has no model.safetensors")
    return dict.fromkeys(read_header(single), single)


def read_tensors(directory: Path, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Read some tensors of a model directory.

    Raises:
        ModelError: One of them is not there.
    """
    files = tensor_files(directory)
    tensors: dict[str, torch.Tensor] = {}
    for name in names:
        if name not in files:
            raise ModelError(f"model {directory} has no tensor {name}")
        read_header(files[name])  # refuses what is not whole before the library maps it
        try:
            with safe_open(files[name], framework="pt") as file:
                tensors[name] = file.get_tensor(name)
        except SafetensorError as error:
            raise ModelError(f"{files[name]}: {one_line(error)}") from error
    return tensors


def _config(directory: Path) -> Any:  # noqa: ANN401 (every architecture has a class of its own)
    """Read the configuration of a model directory."""
    found = read_object(directory / "config.json")
    if found is None:
        raise ModelError(f"model {directory}: config.json is missing")
    check_config(found)
    if read_quantisation(found) is not None:
        found.refuse(CONFIG_FIELD, "none: a drafter shares the target's dense embedding")
    try:
        return AutoConfig.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # whatever a class of transformers raises at a value
        raise ModelError(f"{found.path}: {one_line(error)}") from error
