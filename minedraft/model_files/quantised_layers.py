"""Finds the quantised layers among the tensors of a model directory, and checks their headers.

Each layer is several tensors: codes, scales, zero points. Refuses pieces of another type or shape
than the format says, pieces that are missing or too many, and groups that do not divide the inputs.
Reads no weight; no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.errors import ModelError
from minedraft.model_files.quantisation import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from minedraft.model_files.quantisation import Quantisation
    from minedraft.model_files.weights import TensorFacts

_WORD: Final = 32
"""Bits of the integers that codes are packed into."""
_FLOATS: Final = ("F16", "BF16", "F32")
_FP8: Final = "F8_E4M3"
_CODES: Final = {
    Layout.GPTQ: ("qweight", "I32"),
    Layout.AWQ: ("qweight", "I32"),
    Layout.PACKED: ("weight_packed", "I32"),
    Layout.INT8: ("weight", "I8"),
    Layout.FP8: ("weight", _FP8),
    Layout.FP8_SCALED: ("weight", _FP8),
}
"""The piece that makes a layer a quantised one, and its type."""
_OTHERS: Final = {
    Layout.GPTQ: ("qzeros", "scales", "g_idx"),
    Layout.AWQ: ("qzeros", "scales"),
    Layout.PACKED: ("weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx"),
    Layout.INT8: ("weight_scale", "weight_zero_point"),
    Layout.FP8: ("weight_scale_inv",),
    Layout.FP8_SCALED: ("weight_scale",),
}
"""Its other pieces."""


@dataclass(frozen=True, slots=True)
class QuantisedLayer:
    """A linear layer whose weight is quantised."""

    name: str
    """Of the module: ``model.layers.0.self_attn.q_proj``."""
    out_features: int
    in_features: int
    pieces: frozenset[str]
    """Suffixes of its tensors."""


def find_layers(
    path: Path, quantisation: Quantisation, tensors: Mapping[str, TensorFacts]
) -> dict[str, QuantisedLayer]:
    """Find and check all quantised layers.

    Args:
        path: Of the model, for messages.
        quantisation: From config.json.
        tensors: Of all weight files.

    Returns:
        Module name to layer.

    Raises:
        ModelError: A piece does not fit; names the tensor, what was found and what is wanted.
    """
    suffix, dtype = _CODES[quantisation.layout]
    layers: dict[str, QuantisedLayer] = {}
    for name, facts in tensors.items():
        module, _, last = name.rpartition(".")
        if last == suffix and facts.dtype == dtype:
            layers[module] = _Pieces(path, quantisation, tensors, module).layer()
    if not layers:
        raise ModelError(
            f"model {path}: quantization_config says {quantisation.method}, and no tensor is "
            f"{suffix} of {dtype}"
        )
    known = {suffix, *_OTHERS[quantisation.layout]}
    for name in tensors:
        module, _, last = name.rpartition(".")
        if last in known - {"weight"} and module not in layers:
            raise ModelError(f"model {path}: tensor {name} belongs to no quantised layer")
    return layers


class _Pieces:
    """The tensors of one layer."""

    def __init__(
        self,
        path: Path,
        quantisation: Quantisation,
        tensors: Mapping[str, TensorFacts],
        module: str,
    ) -> None:
        self._path = path
        self._quantisation = quantisation
        self._tensors = tensors
        self._module = module

    def layer(self) -> QuantisedLayer:
        """Check all pieces; return the layer."""
        layout = self._quantisation.layout
        check = {
            Layout.GPTQ: self._gptq,
            Layout.AWQ: self._awq,
            Layout.PACKED: self._packed,
            Layout.INT8: self._scaled,
            Layout.FP8: self._fp8,
            Layout.FP8_SCALED: self._scaled,
        }[layout]
        out_features, in_features = check()
        suffixes = (_CODES[layout][0], *_OTHERS[layout])
        pieces = frozenset(s for s in suffixes if f"{self._module}.{s}" in self._tensors)
        return QuantisedLayer(self._module, out_features, in_features, pieces)

    def _gptq(self) -> tuple[int, int]:
        per_word = _WORD // self._quantisation.bits
        rows, outputs = self._sides("qweight")
        inputs, groups = rows * per_word, self._groups("qweight", rows * per_word)
        self._divides("qweight", outputs, per_word)
        self._want("qzeros", ("I32",), (groups, outputs // per_word))
        self._want("scales", _FLOATS, (groups, outputs))
        if self._has("g_idx"):
            self._want("g_idx", ("I32", "I64"), (inputs,))
        return outputs, inputs

    def _awq(self) -> tuple[int, int]:
        per_word = _WORD // self._quantisation.bits
        inputs, words = self._sides("qweight")
        groups = self._groups("qweight", inputs)
        self._want("qzeros", ("I32",), (groups, words))
        self._want("scales", _FLOATS, (groups, words * per_word))
        return words * per_word, inputs

    def _packed(self) -> tuple[int, int]:
        bits = self._quantisation.bits
        outputs, words = self._sides("weight_packed")
        inputs = words * _WORD // bits
        groups = self._groups("weight_packed", inputs)
        self._want("weight_shape", ("I64", "I32"), (2,))
        self._want("weight_scale", _FLOATS, (outputs, groups))
        if self._has("weight_zero_point"):
            if self._facts("weight_zero_point").dtype == "I8":
                self._want("weight_zero_point", ("I8",), (outputs, groups))
            else:
                packed = -(-outputs * bits // _WORD)
                self._want("weight_zero_point", ("I32",), (packed, groups))
        if self._has("weight_g_idx"):
            self._want("weight_g_idx", ("I32", "I64"), (inputs,))
        return outputs, inputs

    def _scaled(self) -> tuple[int, int]:
        outputs, inputs = self._sides("weight")
        shapes: list[tuple[int, ...]] = [(outputs, 1), (outputs,), (1,), ()]
        if self._quantisation.block is not None:
            shapes = [self._blocks(outputs, inputs)]
        self._want("weight_scale", _FLOATS, *shapes)
        if self._has("weight_zero_point"):
            self._want("weight_zero_point", ("I8",), *shapes)
        return outputs, inputs

    def _fp8(self) -> tuple[int, int]:
        outputs, inputs = self._sides("weight")
        self._want("weight_scale_inv", (*_FLOATS, "F8_E8M0"), self._blocks(outputs, inputs))
        return outputs, inputs

    def _blocks(self, outputs: int, inputs: int) -> tuple[int, int]:
        rows, columns = self._quantisation.block or (outputs, inputs)
        return math.ceil(outputs / rows), math.ceil(inputs / columns)

    def _groups(self, suffix: str, inputs: int) -> int:
        """Return the groups of a row."""
        size = self._quantisation.group
        if size is None:
            return 1
        self._divides(suffix, inputs, size)
        return inputs // size

    def _divides(self, suffix: str, features: int, unit: int) -> None:
        if features % unit:
            raise ModelError(
                f"model {self._path}: {self._module}.{suffix} has {features} features, want a "
                f"multiple of {unit}"
            )

    def _sides(self, suffix: str) -> tuple[int, int]:
        facts = self._facts(suffix)
        if len(facts.shape) != 2 or 0 in facts.shape:  # noqa: PLR2004 rows, columns
            raise ModelError(
                f"model {self._path}: {self._module}.{suffix} has shape {facts.shape}, want rows "
                "and columns"
            )
        return facts.shape[0], facts.shape[1]

    def _want(self, suffix: str, dtypes: tuple[str, ...], *shapes: tuple[int, ...]) -> None:
        facts = self._facts(suffix)
        if facts.dtype not in dtypes or facts.shape not in shapes:
            raise ModelError(
                f"model {self._path}: {self._module}.{suffix} is {facts.dtype} of shape "
                f"{facts.shape}, want {' or '.join(dtypes)} of shape "
                f"{' or '.join(str(shape) for shape in shapes)}"
            )

    def _has(self, suffix: str) -> bool:
        return f"{self._module}.{suffix}" in self._tensors

    def _facts(self, suffix: str) -> TensorFacts:
        facts = self._tensors.get(f"{self._module}.{suffix}")
        if facts is None:
            raise ModelError(f"model {self._path}: {self._module}.{suffix} is missing")
        return facts
