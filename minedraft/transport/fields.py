"""Sets fields of messages; a value that does not fit its field is refused by name.

Knows types and the width of the wire, no ranges: those are in `minedraft.validation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

_MISFITS: Final = (TypeError, ValueError, OverflowError)
_MAX_SHOWN_CHARS: Final = 64


def shown(value: object) -> str:
    """Quote a value for an error, cut if it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer too long for Python to print
        return f"{type(value).__name__} that is too long to show"
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}..."


def set_field(message: Message, name: str, value: object, path: str) -> None:
    """Set a scalar field.

    Raises:
        InvalidRequestError: names `path` and the value.
    """
    try:
        setattr(message, name, value)
    except _MISFITS as err:
        raise InvalidRequestError(f"{path}={shown(value)}: {err}", field=path) from None


def extend_field(message: Message, name: str, values: object, path: str) -> None:
    """Add to a repeated field. Bytes are refused: they would pass for a list of numbers.

    Raises:
        InvalidRequestError: names `path`.
    """
    if isinstance(values, str | bytes | bytearray | memoryview):
        raise InvalidRequestError(f"{path}={shown(values)}: want a list", field=path)
    try:
        getattr(message, name).extend(values)
    except _MISFITS as err:
        raise InvalidRequestError(f"{path}={shown(values)}: {err}", field=path) from None


def fill_map(message: Message, name: str, values: Mapping[int, float], path: str) -> None:
    """Add to a map field.

    Raises:
        InvalidRequestError: names `path`, the key and the value.
    """
    entries = getattr(message, name)
    for key, value in values.items():
        try:
            entries[key] = value
        except _MISFITS as err:
            raise InvalidRequestError(
                f"{path}: {shown(key)}: {shown(value)}: {err}", field=path
            ) from None
