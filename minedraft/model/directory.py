"""A model directory before anything is loaded from it: found, checked, its facts read.

Refuses pickle weights, remote code and quantised checkpoints. Reads JSON only; imports no torch.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minedraft.errors import ModelError

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Weights that would be unpickled: code that runs while loading."""
_HUB_PATTERNS = ("*.safetensors", "*.safetensors.index.json", "*.json", "tokenizer*", "*.jinja")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """What a checked directory says of its model."""

    path: Path
    name: str
    """As the caller gave it if it was a hub id, else the directory's name."""
    config: dict[str, Any]
    """config.json."""
    eos_token_ids: tuple[int, ...]
    """From generation_config.json, else config.json; empty if neither says."""


def open_directory(source: str | Path) -> ModelDirectory:
    """Find a model directory, or fetch a hub id, and check it.

    Args:
        source: A directory, or ``owner/name`` on the hub (safetensors, JSON and tokenizer files
            are fetched, nothing else).

    Raises:
        ModelError: Names the directory and the reason.
    """
    path = Path(source)
    name = path.resolve().name
    if not path.exists():
        if not _HUB_ID.fullmatch(str(source)):
            raise ModelError(
                f"model {source}: no such directory; "
                "`minedraft fetch` gets demo models and prints their directories"
            )
        name, path = str(source), _fetch(str(source))
    if not path.is_dir():
        raise ModelError(f"model {source}: not a directory")
    config = _read_json(path, "config.json")
    if config is None:
        raise ModelError(f"model {path}: config.json is missing")
    _refuse_remote_code(path, config)
    if config.get("quantization_config") is not None:
        method = config["quantization_config"].get("quant_method", "unknown")
        raise ModelError(f"model {path}: quantised weights (quant_method={method!r}) not supported")
    _require_safetensors(path)
    return ModelDirectory(path, name, config, _eos_token_ids(path, config))


def _fetch(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(_HUB_PATTERNS)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as err:
        reason = str(err).strip().split("\n", 1)[0]
        raise ModelError(f"model {hub_id}: no such directory, and the hub says: {reason}") from err


def _read_json(path: Path, file: str) -> dict[str, Any] | None:
    try:
        document = json.loads((path / file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as err:
        raise ModelError(f"model {path}: {file} cannot be read: {err}") from err
    if not isinstance(document, dict):
        raise ModelError(f"model {path}: {file} holds {type(document).__name__}, not an object")
    return document


def _refuse_remote_code(path: Path, config: dict[str, Any]) -> None:
    """`auto_map` names Python of the checkpoint; ignoring it would run another architecture."""
    if config.get("auto_map"):
        names = ", ".join(sorted(str(key) for key in config["auto_map"]))
        raise ModelError(
            f"model {path}: config.json has auto_map ({names}): the model needs code of its own, "
            "and remote code is never run"
        )


def _require_safetensors(path: Path) -> None:
    weights = sorted(file.name for file in path.glob("*.safetensors"))
    index = _read_json(path, _INDEX)
    if weights:
        shards = set((index or {}).get("weight_map", {}).values())
        missing = sorted(shards - set(weights))
        if missing and "model.safetensors" not in weights:
            raise ModelError(f"model {path}: {_INDEX} names missing shards: {', '.join(missing)}")
        return
    pickles = sorted(file.name for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES)
    if pickles:
        raise ModelError(
            f"model {path}: only pickle weights ({', '.join(pickles[:3])}); safetensors are "
            "needed, pickles run code while they load"
        )
    raise ModelError(f"model {path}: no *.safetensors weights")


def _eos_token_ids(path: Path, config: dict[str, Any]) -> tuple[int, ...]:
    generation = _read_json(path, "generation_config.json") or {}
    for document in (generation, config, config.get("text_config") or {}):
        value = document.get("eos_token_id")
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
            raise ModelError(f"model {path}: eos_token_id={value!r} is not a token id")
        return tuple(ids)
    return ()
