"""Hashes the tokens, and the weights, of a model directory, to compare two of them.

Reads files and nothing else: no torch, no tokenizers library, so that every process can afford it.
Refuses to compare merges or normalizers: what must agree between a drafter and a target is what
each token id means, not how text becomes ids (only the target tokenizes).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from minedraft.model_files.token_facts import read_token_facts

_NUM_PIECES: Final = 64
_PIECE_BYTES: Final = 4096


def tokenizer_fingerprint(model_dir: str | Path) -> str:
    """Hash the vocabulary of a model directory.

    Args:
        model_dir: Directory with a `tokenizer.json`, or without one.

    Returns:
        `TokenFacts.fingerprint`; empty if the directory has no tokenizer.

    Raises:
        ModelError: A file cannot be used, or the files contradict one another.
    """
    return read_token_facts(model_dir).fingerprint


def weights_fingerprint(model_dir: str | Path) -> str:
    """Hash a sample of a model's weights that tells models apart.

    Args:
        model_dir: Directory with config.json and safetensors files.

    Returns:
        SHA-256 in hex over config.json and, of each safetensors file, its name, its size and
        64 pieces spread over it, header included. Two fine-tunes of one model differ everywhere,
        so they differ there.
    """
    directory = Path(model_dir)
    digest = hashlib.sha256()
    config = directory / "config.json"
    if config.is_file():
        digest.update(config.read_bytes())
    for path in sorted(directory.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}".encode())
        with path.open("rb") as file:
            for piece in range(_NUM_PIECES):
                file.seek(size * piece // _NUM_PIECES)
                digest.update(file.read(_PIECE_BYTES))
    return digest.hexdigest()
