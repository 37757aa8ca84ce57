"""Reads JSON files of a model directory: regular files of bounded size and the wanted shape.

Refuses with one line that names the file, the field, what was found and what is wanted. Opens
nothing that could block (a FIFO, a device) and reads nothing without a bound. No torch.
"""

from __future__ import annotations

import json
import os
import reprlib
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from minedraft.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_JSON_BYTES: Final = 64 << 20
"""Largest JSON file; the index of a model with 1,000 shards has some 15 MiB."""
MAX_TOKENIZER_BYTES: Final = 128 << 20
"""Largest tokenizer.json; that of a vocabulary of 262,144 tokens has 33 MiB."""
MAX_NESTING: Final = 64
"""Deepest nesting of objects and lists; real files have up to some 10 levels."""

_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"


def refusal(path: Path, field: str, found: object, wanted: str) -> ModelError:
    """Describe the error of a field in one line.

    Args:
        path: The file.
        field: Where in it; empty: the file as a whole.
        found: The value; quoted in at most 48 characters.
        wanted: What would be right.
    """
    where = f"{path}: {field}" if field else str(path)
    return ModelError(f"{where} is {_show(found)}, want {wanted}")


def one_line(err: BaseException) -> str:
    """Shorten an error of a library to one line of at most 300 characters."""
    return " ".join(str(err).split())[:300] or type(err).__name__


def check_regular(path: Path) -> int | None:
    """Check a file without opening it.

    Returns:
        Its size in bytes, links followed; None if there is nothing.

    Raises:
        ModelError: It is no regular file, or cannot be looked at.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as err:
        raise ModelError(f"{path}: cannot be read: {err.strerror}") from err
    _refuse_irregular(path, found.st_mode)
    return found.st_size


def read_bytes(path: Path, limit: int = MAX_JSON_BYTES) -> bytes | None:
    """Read a whole regular file.

    Args:
        path: Of the file; links are followed.
        limit: Most bytes it may have.

    Returns:
        None if there is no such file.

    Raises:
        ModelError: No regular file, too large, a git-lfs pointer, or unreadable.
    """
    if check_regular(path) is None:
        return None
    try:
        # O_NONBLOCK: if it is another file by now, opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            _refuse_irregular(path, found.st_mode)
            if found.st_size > limit:
                raise refusal(path, "size", found.st_size, f"at most {limit} bytes")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(limit + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise ModelError(f"{path}: cannot be read: {err.strerror}") from err
    if len(content) > limit:
        raise refusal(path, "size", len(content), f"at most {limit} bytes")
    refuse_lfs_pointer(path, content)
    return content


def refuse_lfs_pointer(path: Path, beginning: bytes) -> None:
    """Refuse a Git LFS pointer.

    Raises:
        ModelError: It is a git-lfs pointer.
    """
    if beginning.startswith(_LFS_POINTER):
        raise ModelError(
            f"{path}: is a git-lfs pointer, want the file itself: run `git lfs pull` in the "
            "repository it came from"
        )


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object of a JSON file; each getter checks its field."""

    path: Path
    """File name for messages."""
    values: Mapping[str, Any]
    at: str = ""
    """Path within the file, for messages; empty at the top."""

    def refuse(self, field: str, wanted: str) -> NoReturn:
        """Refuse a field's value.

        Raises:
            ModelError: Always.
        """
        raise refusal(self.path, self.name(field), self.values.get(field), wanted)

    def name(self, field: str) -> str:
        """Give the way to a field from the top of the file."""
        return f"{self.at}.{field}" if self.at else field

    def text(self, field: str) -> str | None:
        """Give a string; None where there is none."""
        value = self.values.get(field)
        if value is not None and not isinstance(value, str):
            self.refuse(field, "a string")
        return value

    def flag(self, field: str, default: bool) -> bool:  # noqa: FBT001 reads as a dict's get
        """Give true or false."""
        value = self.values.get(field)
        if value is not None and not isinstance(value, bool):
            self.refuse(field, "true or false")
        return default if value is None else value

    def integer(self, field: str, low: int, high: int) -> int | None:
        """Give a whole number within bounds; None where there is none."""
        value = self.values.get(field)
        if value is not None and not is_integer(value, low, high):
            self.refuse(field, f"a whole number from {low} to {high}")
        return value

    def part(self, field: str) -> JsonObject | None:
        """Give an object within this one; None where there is none."""
        value = self.values.get(field)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(field, "an object")
        return JsonObject(self.path, value, self.name(field))

    def array(self, field: str) -> list[Any]:
        """Give a list; empty where there is none."""
        value = self.values.get(field)
        if value is not None and not isinstance(value, list):
            self.refuse(field, "a list")
        return value or []

    def parts(self, field: str) -> list[JsonObject]:
        """Give a list of objects; empty where there is none."""
        found = []
        for index, entry in enumerate(self.array(field)):
            if not isinstance(entry, dict):
                raise refusal(self.path, f"{self.name(field)}[{index}]", entry, "an object")
            found.append(JsonObject(self.path, entry, f"{self.name(field)}[{index}]"))
        return found


def is_integer(value: object, low: int, high: int) -> bool:
    """Whether a value of a JSON file is a whole number within bounds; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def read_object(path: Path, limit: int = MAX_JSON_BYTES) -> JsonObject | None:
    """Read a file that holds one JSON object.

    Returns:
        None if there is no such file.

    Raises:
        ModelError: As `read_bytes`; or it is no JSON, no object, nested too deep, or has a number
            that JSON does not have (NaN, Infinity).
    """
    content = read_bytes(path, limit)
    return None if content is None else parse_object(path, content)


def parse_object(path: Path, content: bytes) -> JsonObject:
    """Parse the content of a file; see `read_object`."""
    try:
        document = json.loads(content, parse_constant=_no_constant)
    except RecursionError as err:
        raise _too_deep(path) from err
    except ValueError as err:  # bad JSON, bad UTF-8, a number of thousands of digits
        raise ModelError(f"{path}: is no JSON: {one_line(err)}") from err
    if not isinstance(document, dict):
        raise refusal(path, "", document, "a JSON object")
    _refuse_deep(path, document)
    return JsonObject(path, document)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _too_deep(path: Path) -> ModelError:
    return ModelError(f"{path}: is nested deeper than {MAX_NESTING} levels")


def _refuse_deep(path: Path, document: dict[str, Any]) -> None:
    level: list[Any] = [document]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_NESTING:
            raise _too_deep(path)
        level = [
            item
            for part in level
            for item in (part.values() if isinstance(part, dict) else part)
            if isinstance(item, (dict, list))
        ]


def _refuse_irregular(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    raise ModelError(f"{path}: is {kinds.get(stat.S_IFMT(mode), 'no file')}, want a regular file")


def _show(found: object) -> str:
    """Quote a short value; name the type of a long one."""
    if found is None or isinstance(found, bool):
        return json.dumps(found)
    if isinstance(found, dict):
        return "an object"
    if isinstance(found, list):
        return "a list"
    return _QUOTE.repr(found)


_QUOTE: Final = reprlib.Repr()
_QUOTE.maxstring = _QUOTE.maxother = _QUOTE.maxlong = 48
