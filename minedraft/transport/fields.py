"""Sets fields of messages; names the field that a value does not fit.

Knows types and the width of the wire, no ranges: those are in `minedraft.validation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.descriptor import FieldDescriptor

from minedraft.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

_MISFITS: Final = (TypeError, ValueError, OverflowError)
_MAX_SHOWN_CHARS: Final = 64
_BOOL: Final = FieldDescriptor.TYPE_BOOL
_NO_NUMBER: Final = "true and false are no numbers"
"""Booleans are 1 and 0 to Python: `logit_bias={True: 1.0}` would address token 1."""


def shown(value: object) -> str:
    """Quote a value for an error; cut a long one."""
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
    if isinstance(value, bool) and message.DESCRIPTOR.fields_by_name[name].type != _BOOL:
        raise InvalidRequestError(f"{path}={value}: {_NO_NUMBER}", field=path)
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
        # What cannot be iterated over is a misfit as well.
        given: tuple[object, ...] = tuple(values)  # type: ignore[arg-type]
        if bool in set(map(type, given)):
            raise TypeError(_NO_NUMBER)  # caught below, for its path
        getattr(message, name).extend(given)
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
            if isinstance(key, bool) or isinstance(value, bool):
                raise TypeError(_NO_NUMBER)
            entries[key] = value
        except _MISFITS as err:
            raise InvalidRequestError(
                f"{path}: {shown(key)}: {shown(value)}: {err}", field=path
            ) from None
