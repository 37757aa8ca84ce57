"""Finds a model directory, checks it and reads its facts. Loads no weights.

Refuses pickle weights, remote code and quantised checkpoints, and whatever else `model_files`
refuses. Reads headers and JSON only; imports no torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minedraft.errors import ModelError
from minedraft.model_files.added_tokens import TOKENIZER_FILE
from minedraft.model_files.json_file import check_regular, read_object, refusal
from minedraft.model_files.model_config import check_config, num_layers, vocabulary_and_width
from minedraft.model_files.model_hub import fetch_snapshot
from minedraft.model_files.token_facts import read_token_facts
from minedraft.model_files.weights import check_weights

if TYPE_CHECKING:
    from minedraft.model_files.json_file import JsonObject
    from minedraft.model_files.token_facts import TokenFacts
    from minedraft.model_files.weights import Weights

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SNAPSHOT_DEPTH: Final = 3
"""A snapshot of the hub's cache is ``models--owner--name/snapshots/<commit>``."""


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """The facts of a checked model directory."""

    path: Path
    name: str
    """As the caller gave it if it was a hub id, else the directory's (`directory_name`)."""
    config: JsonObject
    """config.json."""
    tokens: TokenFacts
    """Facts about its tokens."""


def open_directory(source: str | Path) -> ModelDirectory:
    """Find a model directory, or fetch a hub id, and check it.

    Args:
        source: A directory, or ``owner/name`` on the hub (safetensors, JSON and tokenizer files
            are fetched, nothing else).

    Raises:
        ModelError: One line that names the directory or file and the reason.
    """
    path = Path(source)
    if not path.exists():
        if not _HUB_ID.fullmatch(str(source)):
            raise ModelError(
                f"model {source}: no such directory; "
                "`minedraft fetch` gets demo models and prints their directories"
            )
        name, path = str(source), _fetch(str(source))
    else:
        name = directory_name(path)
    if not path.is_dir():
        raise ModelError(f"model {source}: not a directory")
    config = read_object(path / "config.json")
    if config is None:
        raise ModelError(f"model {path}: config.json is missing")
    check_config(config)
    adapter = path / "adapter_config.json"
    if check_regular(adapter) is not None:
        raise ModelError(f"{adapter}: is there: the model is an adapter of another, want it whole")
    tokens = read_token_facts(path)
    _check_sizes(config, check_weights(path), tokens)
    return ModelDirectory(path, name, config, tokens)


def directory_name(path: Path) -> str:
    """Return the name of a model: its directory's, or its repository's in the hub's cache."""
    parts = path.resolve().parts
    if len(parts) > _SNAPSHOT_DEPTH and parts[-2] == "snapshots":
        kind, _, name = parts[-_SNAPSHOT_DEPTH].partition("--")
        if kind == "models" and name:
            return name.replace("--", "/")
    return parts[-1] if len(parts) > 1 else str(path)


def _fetch(hub_id: str) -> Path:
    try:
        return fetch_snapshot(hub_id)
    except ModelError as error:
        raise ModelError(f"model {hub_id}: no such directory, and {error}") from error


def _check_sizes(config: JsonObject, weights: Weights, tokens: TokenFacts) -> None:
    """Compare the config's sizes with the tensors, before anything allocates memory for them."""
    layers = num_layers(config)
    if layers > len(weights.shapes):
        raise refusal(config.path, "num_hidden_layers", layers,
                      f"at most one per tensor of the weights, {len(weights.shapes)}")  # fmt: skip
    rows, width = vocabulary_and_width(config)
    if rows is None:
        return
    if width is not None and rows * width > weights.num_elements:
        raise ModelError(
            f"{config.path}: vocab_size {rows} x hidden_size {width} is more than the weights' "
            f"{weights.num_elements} elements, want an embedding that the weights have"
        )
    if tokens.num_ids > rows:
        raise refusal(config.path, "vocab_size", rows,
                      f"at least {tokens.num_ids}, the ids of {TOKENIZER_FILE} and the files "
                      "beside it")  # fmt: skip
