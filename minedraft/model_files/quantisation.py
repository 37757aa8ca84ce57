"""How the weights of a model are quantised, and the settings that several formats share.

Refuses sizes that no format has. The formats themselves are read by `quantisation_config` and
`compressed_tensors`. Pure: takes what was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from minedraft.model_files.json_file import is_integer, refusal

if TYPE_CHECKING:
    from minedraft.model_files.json_file import JsonObject

MAX_GROUP: Final = 1 << 17
"""Largest number of inputs per scale, and rows or columns of a block."""


class Layout(Enum):
    """How the tensors of a quantised layer are laid out."""

    GPTQ = "gptq"
    """`qweight`: codes packed along the inputs."""
    AWQ = "awq"
    """`qweight`: codes packed along the outputs, in an order of their own."""
    PACKED = "compressed-tensors, packed"
    """`weight_packed`: codes packed along the inputs, one row per output."""
    INT8 = "compressed-tensors, int8"
    """`weight`: signed bytes."""
    FP8 = "fp8"
    """`weight`: float8_e4m3fn, with `weight_scale_inv` per block."""
    FP8_SCALED = "compressed-tensors, fp8"
    """`weight`: float8_e4m3fn, with `weight_scale`."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What config.json says of quantised weights."""

    method: str
    """`quant_method`."""
    layout: Layout
    bits: int
    """Of a weight: 4 or 8."""
    group: int | None = None
    """Inputs per scale; None: a whole row, or `block`."""
    block: tuple[int, int] | None = None
    """Outputs and inputs per scale, where both are more than one."""
    zeros_less_one: bool = False
    """Zero points are stored less one, as the first GPTQ format does."""
    quantises_activations: bool = False
    """The checkpoint asks for quantised activations; here only weights are."""

    def describe(self) -> str:
        """Say in a few words what is served, for status and log."""
        kind = f"fp{self.bits}" if self.layout in FLOAT_LAYOUTS else f"int{self.bits}"
        if self.block is not None:
            return f"{kind} ({self.method}, blocks of {self.block[0]} x {self.block[1]})"
        if self.group is not None:
            return f"{kind} ({self.method}, groups of {self.group})"
        return f"{kind} ({self.method})"


FLOAT_LAYOUTS: Final = frozenset({Layout.FP8, Layout.FP8_SCALED})


def read_group(settings: JsonObject, field: str = "group_size") -> int | None:
    """Read the number of inputs per scale; None: -1, the whole row.

    Raises:
        ModelError: No multiple of 8 that is at most `MAX_GROUP`.
    """
    size = settings.integer(field, -1, MAX_GROUP)
    if size == -1:
        return None
    if size is None or size < 1 or size % 8:
        settings.refuse(field, f"-1, or a multiple of 8 up to {MAX_GROUP}")
    return size


def read_block(settings: JsonObject, field: str) -> tuple[int, int]:
    """Read rows and columns per scale.

    Raises:
        ModelError: Not two sizes of 1 to `MAX_GROUP`.
    """
    sides = settings.array(field)
    if len(sides) != 2 or not all(is_integer(side, 1, MAX_GROUP) for side in sides):  # noqa: PLR2004 rows, columns
        raise refusal(settings.path, settings.name(field), str(sides),
                      f"rows and columns of a block, each 1 to {MAX_GROUP}")  # fmt: skip
    return sides[0], sides[1]


def read_bits(settings: JsonObject, field: str, *served: int) -> int:
    """Read the bits of a weight.

    Raises:
        ModelError: Another number than those served.
    """
    bits = settings.integer(field, 1, 64)
    if bits is None or bits not in served:
        settings.refuse(field, " or ".join(str(number) for number in served))
    return bits
