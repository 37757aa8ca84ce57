"""Finds a model directory, checks it and reads its facts. Loads no weights.

Refuses pickle weights, remote code and quantisations that are not served, and whatever else
`model_files` refuses. Reads headers and JSON only; imports no torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minedraft.errors import ModelError
from minedraft.model_files.added_tokens import TOKENIZER_FILE
from minedraft.model_files.gguf_header import GgufHeader, read_gguf_header
from minedraft.model_files.gguf_names import check_architecture
from minedraft.model_files.json_file import check_regular, read_object, refusal
from minedraft.model_files.model_config import check_config, num_layers, vocabulary_and_width
from minedraft.model_files.model_hub import fetch_snapshot
from minedraft.model_files.quantisation_config import CONFIG_FIELD, read_quantisation
from minedraft.model_files.quantised_layers import find_layers
from minedraft.model_files.token_facts import read_token_facts
from minedraft.model_files.weights import Weights, check_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minedraft.model_files.json_file import JsonObject
    from minedraft.model_files.quantisation import Quantisation
    from minedraft.model_files.quantised_layers import QuantisedLayer
    from minedraft.model_files.token_facts import TokenFacts

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_CODES: Final = frozenset({"qweight", "weight_packed", "weight_scale_inv"})
"""Last names of tensors that only quantised layers have."""
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
    dense_bytes: int
    """Bytes of the weights, in bfloat16 where they are quantised."""
    quantisation: Quantisation | None = None
    """How the weights of `layers` are quantised."""
    layers: dict[str, QuantisedLayer] = field(default_factory=dict)
    """Module name to quantised layer."""
    gguf: GgufHeader | None = None
    """The header of the GGUF file that has the weights, in place of safetensors."""

    @property
    def is_quantised(self) -> bool:
        """Whether transformers cannot load the weights by itself."""
        return self.quantisation is not None or self.gguf is not None

    @property
    def quantises_activations(self) -> bool:
        """Whether config.json asks for quantised activations as well."""
        return self.quantisation is not None and self.quantisation.quantises_activations

    @property
    def quantisation_words(self) -> str:
        """How the weights are quantised, in a few words; empty if they are not."""
        if self.gguf is not None:
            return self.gguf.describe()
        return "" if self.quantisation is None else self.quantisation.describe()


def open_directory(source: str | Path) -> ModelDirectory:
    """Find a model directory, or fetch a hub id, and check it.

    Args:
        source: A directory, with safetensors or else one GGUF file beside config.json and
            tokenizer.json; or ``owner/name`` on the hub (safetensors, JSON and tokenizer files are
            fetched, nothing else).

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
    quantisation = read_quantisation(config)
    adapter = path / "adapter_config.json"
    if check_regular(adapter) is not None:
        raise ModelError(f"{adapter}: is there: the model is an adapter of another, want it whole")
    tokens = read_token_facts(path)
    gguf = _gguf(path, config)
    weights = check_weights(path) if gguf is None else gguf.weights()
    _check_sizes(config, weights, tokens)
    if quantisation is None:
        _refuse_codes(config, weights)
    layers = {} if quantisation is None else find_layers(path, quantisation, weights.tensors)
    num_bytes = _dense_bytes(weights, layers) if gguf is None else 2 * weights.num_elements
    return ModelDirectory(path, name, config, tokens, num_bytes, quantisation, layers, gguf)


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


def _gguf(path: Path, config: JsonObject) -> GgufHeader | None:
    """Read the header of the GGUF file, where there are no safetensors."""
    files = [] if any(path.glob("*.safetensors")) else sorted(path.glob("*.gguf"))
    if not files:
        return None
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:3])
        raise ModelError(f"model {path}: {len(files)} GGUF files ({names}), want one")
    if config.values.get(CONFIG_FIELD) is not None:
        config.refuse(CONFIG_FIELD, f"none beside {files[0].name}")
    header = read_gguf_header(files[0])
    check_architecture(config, header)
    return header


def _refuse_codes(config: JsonObject, weights: Weights) -> None:
    """Refuse quantised weights that config.json does not tell of, as some old checkpoints have."""
    for name in weights.tensors:
        if name.rpartition(".")[2] in _CODES:
            raise refusal(config.path, CONFIG_FIELD, None, f"the settings of {name}")


def _dense_bytes(weights: Weights, layers: Mapping[str, QuantisedLayer]) -> int:
    """Count the tensors that are not quantised, and the quantised layers as bfloat16."""
    pieces = {f"{name}.{piece}" for name, layer in layers.items() for piece in layer.pieces}
    plain = sum(facts.num_bytes for name, facts in weights.tensors.items() if name not in pieces)
    return plain + sum(2 * layer.out_features * layer.in_features for layer in layers.values())


def _check_sizes(config: JsonObject, weights: Weights, tokens: TokenFacts) -> None:
    """Compare the config's sizes with the tensors, before anything allocates memory for them."""
    layers = num_layers(config)
    if layers > len(weights.tensors):
        raise refusal(config.path, "num_hidden_layers", layers,
                      f"at most one per tensor of the weights, {len(weights.tensors)}")  # fmt: skip
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
