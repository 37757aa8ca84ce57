"""Hashes the tokens, and the weights, of a model directory, to compare two of them.

Reads files and nothing else: no torch, no tokenizers library, so that every process can afford it.
Refuses to compare merges or normalizers: what must agree between a drafter and a target is what
each token id means, not how text becomes ids (only the target tokenizes).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from minedraft.model_files.gguf_header import read_gguf_header
from minedraft.model_files.json_file import parse_object
from minedraft.model_files.quantisation_config import CONFIG_FIELD
from minedraft.model_files.token_facts import read_token_facts
from minedraft.model_files.weights import read_header

if TYPE_CHECKING:
    from hashlib import _Hash

_NUM_PIECES: Final = 64
_PIECE_BYTES: Final = 4096
_TENSOR_PIECES: Final = 8
_TENSOR_PIECE_BYTES: Final = 1024


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
        model_dir: Directory with config.json and weights.

    Returns:
        SHA-256 in hex over config.json and, of each weight file, its name, its size and 64 pieces
        spread over it, header included. Two fine-tunes of one model differ everywhere, so they
        differ there. Of quantised weights pieces of every tensor are hashed as well: two
        quantisations of one model may have the same codes, and scales are a thirtieth of a file.

    Raises:
        ModelError: config.json is no JSON object, or a quantised file is not whole.
    """
    directory = Path(model_dir)
    digest = hashlib.sha256()
    config = directory / "config.json"
    is_quantised = False
    if config.is_file():
        content = config.read_bytes()
        digest.update(content)
        is_quantised = parse_object(config, content).values.get(CONFIG_FIELD) is not None
    files = sorted(directory.glob("*.safetensors")) or sorted(directory.glob("*.gguf"))
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}".encode())
        with path.open("rb") as file:
            for piece in range(_NUM_PIECES):
                file.seek(size * piece // _NUM_PIECES)
                digest.update(file.read(_PIECE_BYTES))
            if is_quantised or path.suffix == ".gguf":
                for begin, num_bytes in _tensors(path):
                    _update_sample(digest, file, begin, num_bytes)
    return digest.hexdigest()


def _tensors(path: Path) -> list[tuple[int, int]]:
    """First byte and number of bytes of each tensor."""
    is_gguf = path.suffix == ".gguf"
    tensors = read_gguf_header(path).weights().tensors if is_gguf else read_header(path)
    return [(facts.begin, facts.num_bytes) for facts in tensors.values()]


def _update_sample(digest: _Hash, file: BinaryIO, begin: int, num_bytes: int) -> None:
    """Hash a tensor, or pieces spread over it."""
    step = max(num_bytes // _TENSOR_PIECES, _TENSOR_PIECE_BYTES)
    for at in range(0, num_bytes, step):
        file.seek(begin + at)
        digest.update(file.read(min(_TENSOR_PIECE_BYTES, num_bytes - at)))
