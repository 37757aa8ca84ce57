"""The pair that hostile checks run: two tiny Llamas with SmolLM2's tokenizer and chat template.

Steps take milliseconds, so that a stall of 50 ms shows; the tokenizer is a real one, with tokens of
many characters. The draft model is the target with noise: some of its drafts are accepted.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file

from minedraft.hub.pairs import ensure_pair
from tests.tiny_models import make_tiny_llama

if TYPE_CHECKING:
    from pathlib import Path

MAX_LEN = 8192
_NOISE = 0.02
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)


def make_pair(directory: Path) -> tuple[Path, Path]:
    """Write both models.

    Args:
        directory: Where; made if missing.

    Returns:
        Directories of target and draft model.
    """
    source = ensure_pair("smollm2").target_dir
    vocab = json.loads((source / "config.json").read_text())["vocab_size"]
    target = make_tiny_llama(
        directory / "target", vocab_size=vocab, max_len=MAX_LEN, layers=2, tokenizer_size=0
    )
    draft = directory / "draft"
    shutil.copytree(target, draft, dirs_exist_ok=True)
    weights = load_file(draft / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    for tensor in weights.values():
        noise = torch.randn(tensor.shape, generator=generator)
        tensor.add_(noise, alpha=_NOISE * float(tensor.std()))
    save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})
    for each in (target, draft):
        for name in _TOKENIZER_FILES:
            if (source / name).exists():
                shutil.copyfile(source / name, each / name)
    return target, draft


def copy_of(model: Path, directory: Path) -> Path:
    """Copy a model directory, to spoil the copy."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(model, directory)
    return directory
