"""The weights of a quantised model directory, by the names that transformers' model has.

Two kinds of files, safetensors and GGUF, one view: layers whose weight is quantised, and tensors
that are as they are. Reads a tensor when it is asked for, not before. Refuses numbers that cannot
be, by the name of their tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import gguf
import torch
from safetensors import safe_open

from minedraft.errors import ModelError
from minedraft.model.quantised.gguf_blocks import read_blocks, read_bytes
from minedraft.model.quantised.grouped import GroupedWeight
from minedraft.model.quantised.layouts import read_layer
from minedraft.model_files.gguf_header import PLAIN
from minedraft.model_files.gguf_names import (
    DERIVED,
    NORMS_PLUS_ONE,
    ROTARY_PAIRS_INTERLEAVED,
    rotary_order,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from torch import Tensor

    from minedraft.model.directory import ModelDirectory
    from minedraft.model_files.gguf_header import GgufTensor
    from minedraft.model_files.quantisation import Quantisation
    from minedraft.model_files.quantised_layers import QuantisedLayer


_EMBEDDING: Final = "embed_tokens.weight"
_GROUP_UNIT: Final = 8
"""Kernels take groups of a multiple of this."""


class Source(Protocol):
    """What a quantised model is built from."""

    @property
    def layers(self) -> Mapping[str, tuple[int, int]]:
        """Layers whose weight is quantised: module name to outputs and inputs."""

    def read(self, module: str) -> GroupedWeight | Tensor:
        """Read the weight of a layer: in groups, or in bfloat16 if no kernel keeps it packed."""

    def tensors(self, without: Collection[str]) -> dict[str, Callable[[], Tensor]]:
        """Return how to read everything that is not the weight of a layer in `without`.

        Quantised weights come dequantised.
        """


class SafetensorsSource:
    """Safetensors of the layouts in `quantisation`.

    Args:
        directory: With a quantisation.
    """

    def __init__(self, directory: ModelDirectory, quantisation: Quantisation) -> None:
        self._path = directory.path
        self._quantisation = quantisation
        self._layers = directory.layers
        self._files: dict[str, Any] = {}
        for path in sorted(directory.path.glob("*.safetensors")):
            file: Any = safe_open(path, framework="pt")
            self._files |= dict.fromkeys(file.keys(), file)
        self.layers = {
            name: (layer.out_features, layer.in_features) for name, layer in self._layers.items()
        }

    def read(self, module: str) -> GroupedWeight | Tensor:
        """Read the weight of a layer (see `Source`)."""
        try:
            layer = self._layers[module]
            return packable(read_layer(self._quantisation, layer, self._pieces(layer)))
        except ModelError as err:
            raise ModelError(f"model {self._path}: {module}: {err}") from err

    def tensors(self, without: Collection[str]) -> dict[str, Callable[[], Tensor]]:
        """Return how to read all else (see `Source`)."""
        pieces = {f"{n}.{piece}" for n, layer in self._layers.items() for piece in layer.pieces}
        found: dict[str, Callable[[], Tensor]] = {
            name: self._plain(name) for name in self._files if name not in pieces
        }
        for name in self._layers.keys() - set(without):
            found[f"{name}.weight"] = self._dense(name)
        return found

    def _plain(self, name: str) -> Callable[[], Tensor]:
        return lambda: self._files[name].get_tensor(name)

    def _dense(self, module: str) -> Callable[[], Tensor]:
        return lambda: dequantised(self.read(module))

    def _pieces(self, layer: QuantisedLayer) -> Callable[[str], Tensor]:
        def read(piece: str) -> Tensor:
            name = f"{layer.name}.{piece}"
            tensor: Tensor = self._files[name].get_tensor(name)
            return tensor

        return read


class GgufSource:
    """A GGUF file.

    Args:
        directory: With a GGUF header.
        config: transformers' own, of the text model.
        names: Of the model's parameters.

    Raises:
        ModelError: The file has a tensor that the model has not.
    """

    def __init__(self, directory: ModelDirectory, config: Any, names: Iterable[str]) -> None:  # noqa: ANN401 every architecture has a class of its own
        header = directory.gguf
        if header is None:
            raise ModelError(f"model {directory.path}: no GGUF file")
        self._path = header.path
        self._architecture = header.architecture
        self._heads = {
            "q_proj": config.num_attention_heads,
            "k_proj": config.num_key_value_heads,
        }
        kind = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == header.architecture)
        mapping = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
        left = dict(header.tensors)
        self._tensors: dict[str, GgufTensor] = {}
        for name in names:
            stem, _, suffix = name.rpartition(".")
            facts = left.pop(f"{mapping.get_name(stem)}.{suffix}", None)
            if facts is not None:
                self._tensors[name] = facts
        odd = sorted(left.keys() - DERIVED)
        if odd:
            raise ModelError(f"{self._path}: tensors {odd[:3]} have no place in the model")
        self.layers = {
            name.removesuffix(".weight"): (facts.shape[0], facts.shape[1])
            for name, facts in self._tensors.items()
            if facts.kind not in PLAIN and len(facts.shape) == 2  # noqa: PLR2004 rows, columns
        }

    def read(self, module: str) -> GroupedWeight | Tensor:
        """Read the weight of a layer (see `Source`)."""
        return packable(self._read(f"{module}.weight"))

    def tensors(self, without: Collection[str]) -> dict[str, Callable[[], Tensor]]:
        """Return how to read all else (see `Source`)."""
        packed = {f"{name}.weight" for name in without}
        return {name: self._dense(name) for name in self._tensors if name not in packed}

    def _dense(self, name: str) -> Callable[[], Tensor]:
        if self._tensors[name].kind in PLAIN:
            return lambda: dequantised(self._read(name))
        if name.endswith(_EMBEDDING):  # rows are looked up, nothing keeps them packed
            return lambda: dequantised(self._read(name)).to(torch.bfloat16)
        return lambda: dequantised(packable(self._read(name)))

    def _read(self, name: str) -> GroupedWeight | Tensor:
        facts = self._tensors[name]
        content = read_bytes(str(self._path), facts)
        if content.numel() != facts.num_bytes:
            raise ModelError(f"{self._path}: {name}: the file was cut while it was read")
        try:
            weight = read_blocks(facts, content)
        except ModelError as err:
            raise ModelError(f"{self._path}: {name}: {err}") from err
        stem, _, suffix = name.rpartition(".")
        heads = self._heads.get(stem.rpartition(".")[2])
        if self._architecture in ROTARY_PAIRS_INTERLEAVED and heads is not None:
            order = torch.from_numpy(rotary_order(facts.shape[0], heads))
            return weight.rows(order) if isinstance(weight, GroupedWeight) else weight[order]
        if self._architecture in NORMS_PLUS_ONE and stem.endswith("norm") and suffix == "weight":
            if isinstance(weight, GroupedWeight):
                raise ModelError(f"{self._path}: {name}: a norm is quantised")
            return weight - 1
        return weight


def packable(weight: GroupedWeight | Tensor) -> GroupedWeight | Tensor:
    """Return groups that kernels take, or else the weight in bfloat16."""
    if isinstance(weight, GroupedWeight):
        if weight.group % _GROUP_UNIT == 0:
            return weight
        weight = weight.dequantised()
    return weight.to(torch.bfloat16)


def dequantised(weight: GroupedWeight | Tensor) -> Tensor:
    """Return the weight, dense."""
    return weight.dequantised() if isinstance(weight, GroupedWeight) else weight
