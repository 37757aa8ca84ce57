"""Whether two model directories speak the same tokens: a hash of their vocabularies.

Reads one JSON file and nothing else: no torch, no tokenizers library, so that every process can
afford it. Refuses to compare merges or normalizers: what must agree between a drafter and a
target is what each token id means, not how text becomes ids (only the target tokenizes).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from minedraft.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUM_PIECES: Final = 64
_PIECE_BYTES: Final = 4096
TOKENIZER_FILE: Final = "tokenizer.json"
"""The only tokenizer format read: the tokenizers library's own."""


def tokenizer_fingerprint(model_dir: str | Path) -> str:
    """Hash the vocabulary of a model directory.

    Args:
        model_dir: Directory with a `tokenizer.json`, or without one.

    Returns:
        SHA-256 in hex over all (token, id) pairs, added tokens included, and the ids of special
        tokens; empty if the directory has no tokenizer.

    Raises:
        ModelError: The file is no tokenizer.
    """
    path = Path(model_dir) / TOKENIZER_FILE
    if not path.is_file():
        return ""
    return fingerprint_of(read_tokenizer_json(path), path)


def read_tokenizer_json(path: Path) -> dict[str, Any]:
    """Parse a `tokenizer.json`.

    Raises:
        ModelError: It cannot be read, or is no JSON object.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as err:
        raise ModelError(f"{path}: not a readable JSON file: {err}") from err
    if not isinstance(document, dict):
        raise ModelError(f"{path}: is a {type(document).__name__}, want a JSON object")
    return document


def fingerprint_of(document: Mapping[str, Any], path: Path) -> str:
    """Hash the vocabulary of a parsed `tokenizer.json` (`path` is for messages)."""
    try:
        vocab = document["model"]["vocab"]
        if isinstance(vocab, list):  # Unigram: [token, score] at the place of its id
            ids = {str(entry[0]): index for index, entry in enumerate(vocab)}
        else:
            ids = {str(token): int(index) for token, index in vocab.items()}
        special_ids: set[int] = set()
        for added in document.get("added_tokens") or ():
            ids[str(added["content"])] = int(added["id"])
            if added.get("special"):
                special_ids.add(int(added["id"]))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as err:
        raise ModelError(f"{path}: no vocabulary in it: {type(err).__name__}: {err}") from err
    # By id first: files list them in that order, which makes the sort linear. Then one canonical
    # JSON text: no separator that a token could contain, and one call in C.
    pairs = sorted((index, token) for token, index in ids.items())
    canonical = json.dumps([pairs, sorted(special_ids)], separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def weights_fingerprint(model_dir: str | Path) -> str:
    """Hash what tells one model's weights from another's, without reading all of them.

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
