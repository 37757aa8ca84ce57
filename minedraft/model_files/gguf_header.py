"""Reads the header of a GGUF file: which tensors it has, of which shape and type, and where.

Refuses giant counts, types that are not served, and tensors beyond the end of the file, before any
weight is read. Walks over the settings without keeping them: config.json and tokenizer.json beside
the file are the truth. No torch, no gguf library, which has no bounds.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from minedraft.errors import ModelError
from minedraft.model_files.json_file import check_regular, one_line, refusal, refuse_lfs_pointer
from minedraft.model_files.weights import TensorFacts, Weights

if TYPE_CHECKING:
    from pathlib import Path

MAX_TENSORS: Final = 1 << 17
MAX_SETTINGS: Final = 1 << 12
"""Key and value pairs; real files have some 40."""
MAX_ELEMENTS: Final = 1 << 22
"""Elements of all lists of settings together; a vocabulary of 262,144 has four such lists."""
MAX_SETTINGS_BYTES: Final = 256 << 20
"""Longest header; that of a vocabulary of 262,144 tokens has some 16 MiB."""
_MAX_NAME: Final = 1 << 10
_MAX_SIDES: Final = 4
_MAX_SIDE: Final = 1 << 40
_MAX_ALIGNMENT: Final = 1 << 16
_VERSIONS: Final = (2, 3)


class GgufType(IntEnum):
    """Types of tensors that are served, under llama.cpp's numbers."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    BF16 = 30


BLOCKS: Final = {
    GgufType.F32: (1, 4),
    GgufType.F16: (1, 2),
    GgufType.Q4_0: (32, 18),
    GgufType.Q4_1: (32, 20),
    GgufType.Q5_0: (32, 22),
    GgufType.Q5_1: (32, 24),
    GgufType.Q8_0: (32, 34),
    GgufType.Q4_K: (256, 144),
    GgufType.Q5_K: (256, 176),
    GgufType.Q6_K: (256, 210),
    GgufType.BF16: (1, 2),
}
"""Elements and bytes of a block."""
PLAIN: Final = frozenset({GgufType.F32, GgufType.F16, GgufType.BF16})
"""Types that are not quantised."""

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q",
                   11: "q", 12: "d"}  # fmt: skip
"""Types of settings to formats of `struct`."""
_LENGTH: Final = struct.Struct("<Q")
"""Of a text."""
_STRING: Final = 8
_LIST: Final = 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies."""

    shape: tuple[int, ...]
    """Rows first, as torch has it."""
    kind: GgufType
    begin: int
    """First byte in the file."""
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The facts of a checked GGUF file."""

    path: Path
    architecture: str
    tensors: dict[str, GgufTensor]

    def describe(self) -> str:
        """Name the quantised types, the most frequent one first."""
        kinds = [t.kind for t in self.tensors.values() if t.kind not in PLAIN]
        names = sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))
        return f"gguf ({', '.join(kind.name for kind in names) or 'not quantised'})"

    def weights(self) -> Weights:
        """The tensors as those of safetensors are described."""
        return Weights(
            {
                name: TensorFacts(tensor.shape, tensor.kind.name, tensor.begin, tensor.num_bytes)
                for name, tensor in self.tensors.items()
            }
        )


def read_gguf_header(path: Path) -> GgufHeader:
    """Read and check the header.

    Raises:
        ModelError: No GGUF file, one that is not whole, or one with a type that is not served.
    """
    size = check_regular(path)
    if size is None:
        raise ModelError(f"{path}: is missing")
    if size < len(_Cursor.MAGIC) or size == 0:
        raise refusal(path, "size", size, "a GGUF file")
    try:
        with path.open("rb") as opened:
            refuse_lfs_pointer(path, opened.read(64))
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _Cursor(path, content).header()
    except (OSError, ValueError) as err:
        raise ModelError(f"{path}: cannot be read: {one_line(err)}") from err


class _Cursor:
    """Walks over a header; each step looks where the file ends.

    Args:
        path: For messages.
        content: The whole file.
    """

    MAGIC: Final = b"GGUF"

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self._path = path
        self._content = content
        self._at = 0
        self._end = min(len(content), MAX_SETTINGS_BYTES)
        self._elements = 0

    def header(self) -> GgufHeader:
        """Read everything up to the first tensor."""
        magic = bytes(self._content[: len(self.MAGIC)])
        if magic != self.MAGIC:
            raise refusal(self._path, "first bytes", magic, repr(self.MAGIC))
        self._at = len(self.MAGIC)
        version = self._number("I", "version")
        if version not in _VERSIONS:
            raise refusal(self._path, "version", version, "2 or 3")
        num_tensors = self._count("tensor count", MAX_TENSORS)
        num_settings = self._count("settings count", MAX_SETTINGS)
        settings = self._settings(num_settings)
        if settings.get("split.count", 1) not in {0, 1}:
            raise refusal(self._path, "split.count", settings["split.count"], "one file")
        architecture = settings.get("general.architecture")
        if not isinstance(architecture, str):
            raise refusal(self._path, "general.architecture", architecture, "a name")
        alignment = settings.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= _MAX_ALIGNMENT or (
            alignment & (alignment - 1)
        ):  # fmt: skip
            raise refusal(self._path, "general.alignment", alignment, "a power of two")
        found = [self._tensor() for _ in range(num_tensors)]
        begin = -(-self._at // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, shape, kind, offset in found:
            if name in tensors:
                raise refusal(self._path, "tensor", name, "a name of its own")
            tensors[name] = self._placed(name, shape, kind, begin + offset)
        return GgufHeader(self._path, architecture, tensors)

    def _placed(self, name: str, shape: tuple[int, ...], kind: GgufType, begin: int) -> GgufTensor:
        per_block, block_bytes = BLOCKS[kind]
        if shape[-1] % per_block:
            raise refusal(self._path, f"{name}: columns", shape[-1],
                          f"a multiple of {per_block}, the block of {kind.name}")  # fmt: skip
        num_bytes = math.prod(shape) // per_block * block_bytes
        if begin + num_bytes > len(self._content):
            raise refusal(self._path, f"{name}: end", begin + num_bytes,
                          f"at most {len(self._content)}, the size of the file")  # fmt: skip
        return GgufTensor(shape, kind, begin, num_bytes)

    def _settings(self, count: int) -> dict[str, object]:
        """Walk over all; keep scalars and text, of which a few matter."""
        found: dict[str, object] = {}
        for _ in range(count):
            key = self._text("name of a setting", _MAX_NAME)
            kind = self._number("I", key)
            if kind == _LIST:
                self._skip_list(key)
            elif kind == _STRING:
                found[key] = self._text(key, MAX_SETTINGS_BYTES)
            else:
                found[key] = self._number(self._scalar(key, kind), key)
        return found

    def _skip_list(self, key: str) -> None:
        kind = self._number("I", key)
        count = self._count(key, MAX_ELEMENTS)
        self._elements += count
        if self._elements > MAX_ELEMENTS:
            raise refusal(self._path, f"{key}: elements of all lists", self._elements,
                          f"at most {MAX_ELEMENTS}")  # fmt: skip
        if kind == _STRING:
            self._skip_texts(count, key)
        else:
            self._skip(count * struct.calcsize(f"<{self._scalar(key, kind)}"), key)

    def _skip_texts(self, count: int, key: str) -> None:
        """Step over some texts; a loop of its own, for there may be a million."""
        content, at, last = self._content, self._at, self._end - _LENGTH.size
        for _ in range(count):
            if at > last:
                break
            at += _LENGTH.size + _LENGTH.unpack_from(content, at)[0]
        else:
            self._skip(at - self._at, key)
            return
        self._skip(at + _LENGTH.size - self._at, key)

    def _tensor(self) -> tuple[str, tuple[int, ...], GgufType, int]:
        name = self._text("name of a tensor", _MAX_NAME)
        num_sides = self._number("I", f"{name}: dimensions")
        if not 1 <= num_sides <= _MAX_SIDES:
            raise refusal(self._path, f"{name}: dimensions", num_sides, f"1 to {_MAX_SIDES}")
        sides = [self._number("Q", f"{name}: shape") for _ in range(num_sides)]
        for side in sides:
            if not 1 <= side <= _MAX_SIDE:
                raise refusal(self._path, f"{name}: shape", side, f"1 to {_MAX_SIDE}")
        number = self._number("I", f"{name}: type")
        if number not in BLOCKS:
            served = ", ".join(kind.name for kind in BLOCKS)
            raise refusal(self._path, f"{name}: type", number, f"one of {served}")
        return name, tuple(reversed(sides)), GgufType(number), self._number("Q", f"{name}: offset")

    def _scalar(self, key: str, kind: int) -> str:
        if kind not in _SCALARS:
            raise refusal(self._path, f"{key}: type", kind, "a type of GGUF, no list of lists")
        return _SCALARS[kind]

    def _count(self, field: str, most: int) -> int:
        count = self._number("Q", field)
        if count > most:
            raise refusal(self._path, field, count, f"at most {most}")
        return count

    def _number(self, kind: str, field: str) -> int:
        size = struct.calcsize(f"<{kind}")
        begin = self._skip(size, field)
        (value,) = struct.unpack_from(f"<{kind}", self._content, begin)
        return value  # type: ignore[no-any-return]  # floats and flags are never compared

    def _text(self, field: str, most: int) -> str:
        length = self._number("Q", field)
        if length > most:
            raise refusal(self._path, f"{field}: length", length, f"at most {most}")
        begin = self._skip(length, field)
        return bytes(self._content[begin : begin + length]).decode("utf-8", "replace")

    def _skip(self, num_bytes: int, field: str) -> int:
        """Step over some bytes and return where they begin."""
        begin = self._at
        if num_bytes > self._end - begin:
            raise refusal(self._path, f"{field}: end", begin + num_bytes,
                          f"at most {self._end}, the end of file or header")  # fmt: skip
        self._at = begin + num_bytes
        return begin
