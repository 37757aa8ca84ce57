"""Checks the weight files of a model directory by their headers, before any weight is read.

Refuses pickles, pointers, files cut short and shards that are missing. Reads headers only; no
torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.errors import ModelError
from minedraft.model_files.json_file import (
    JsonObject,
    check_regular,
    is_integer,
    one_line,
    parse_object,
    read_object,
    refusal,
    refuse_lfs_pointer,
)

if TYPE_CHECKING:
    from pathlib import Path

PICKLE_SUFFIXES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Suffixes of pickled weights, which can run code while they load."""
MAX_HEADER_BYTES: Final = 32 << 20
"""Longest header of a safetensors file; 100,000 tensors have some 12 MiB."""
INDEX_FILE: Final = "model.safetensors.index.json"
_LENGTH_BYTES: Final = 8
"""A safetensors file begins with the length of its header, which begins with `{}`."""
_ELEMENT_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What the header of a file says of a tensor."""

    shape: tuple[int, ...]
    dtype: str
    """Under the name that the format gives it, such as ``BF16``."""
    begin: int
    """First byte in the file."""
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors of the headers."""

    tensors: dict[str, TensorFacts]
    """Tensor to facts."""

    @property
    def num_elements(self) -> int:
        """Elements of all tensors together."""
        return sum(math.prod(facts.shape) for facts in self.tensors.values())


def check_weights(directory: Path) -> Weights:
    """Read the header of every safetensors file of a model directory.

    Raises:
        ModelError: There is none, or one is not whole; names the file and what is wrong.
    """
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        pickles = sorted(
            file.name for file in directory.iterdir() if file.suffix in PICKLE_SUFFIXES
        )
        if pickles:
            raise ModelError(
                f"model {directory}: only pickle weights ({', '.join(pickles[:3])}); safetensors "
                "are needed, pickles run code while they load"
            )
        raise ModelError(f"model {directory}: no *.safetensors weights")
    _check_index(directory, {file.name for file in files})
    tensors: dict[str, TensorFacts] = {}
    for file in files:
        tensors.update(read_header(file))
    return Weights(tensors)


def read_header(file: Path) -> dict[str, TensorFacts]:
    """Read the header of a safetensors file.

    Raises:
        ModelError: No safetensors file, or not all of it.
    """
    size = check_regular(file)
    if size is None:
        raise ModelError(f"{file}: is missing")
    try:
        with file.open("rb") as opened:
            beginning = opened.read(64)
            refuse_lfs_pointer(file, beginning)
            length = int.from_bytes(beginning[:_LENGTH_BYTES], "little")
            most = min(MAX_HEADER_BYTES, max(size - _LENGTH_BYTES, 0))
            if len(beginning) < _LENGTH_BYTES or length > most:
                raise refusal(file, "length of the header", length, f"at most {most} bytes")
            opened.seek(_LENGTH_BYTES)
            content = opened.read(length)
    except OSError as err:
        raise ModelError(f"{file}: cannot be read: {one_line(err)}") from err
    header = parse_object(file, content)
    first = _LENGTH_BYTES + length
    tensors = {
        name: _tensor(header, name, first) for name in header.values if name != "__metadata__"
    }
    end = max((facts.begin + facts.num_bytes for facts in tensors.values()), default=first)
    if size != end:
        raise refusal(file, "size", size, f"{end} bytes, as its header says")
    return tensors


def _tensor(header: JsonObject, name: str, first: int) -> TensorFacts:
    """Return the facts of a tensor, of a file whose data begins at byte `first`."""
    entry = header.part(name)
    if entry is None:
        header.refuse(name, "a tensor")
    shape, offsets, dtype = entry.array("shape"), entry.array("data_offsets"), entry.text("dtype")
    if not all(is_integer(side, 0, 1 << 48) for side in shape):
        entry.refuse("shape", "a list of sizes")
    if len(offsets) != 2 or not all(is_integer(offset, 0, 1 << 60) for offset in offsets):  # noqa: PLR2004 first and last
        entry.refuse("data_offsets", "where its bytes begin and end")
    bits = _ELEMENT_BITS.get(dtype or "")
    if bits is None:
        entry.refuse("dtype", "a type of safetensors")
    num_bytes = math.prod(shape) * bits // 8
    if offsets[1] - offsets[0] != num_bytes:
        raise refusal(entry.path, entry.name("data_offsets"), offsets[1] - offsets[0],
                      f"{num_bytes} bytes, as its shape says")  # fmt: skip
    return TensorFacts(tuple(shape), dtype or "", first + offsets[0], num_bytes)


def read_index(directory: Path) -> dict[str, str] | None:
    """Read which file holds which tensor.

    Returns:
        Tensor to file name; None if the weights have no index.

    Raises:
        ModelError: It has another shape, or names something else than files beside it.
    """
    index = read_object(directory / INDEX_FILE)
    if index is None:
        return None
    shards = index.part("weight_map")
    if shards is None:
        index.refuse("weight_map", "an object")
    for name, shard in shards.values.items():
        if not isinstance(shard, str) or "/" in shard or "\0" in shard:
            raise refusal(
                index.path, f"weight_map[{name[:48]!r}]", shard, "the name of a file beside it"
            )
    return dict(shards.values)


def _check_index(directory: Path, files: set[str]) -> None:
    missing = sorted(set((read_index(directory) or {}).values()) - files)
    if missing and "model.safetensors" not in files:
        raise ModelError(
            f"model {directory}: {INDEX_FILE} names missing shards: {', '.join(missing[:3])}"
        )
