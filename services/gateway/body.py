"""Reads the fields of a JSON body by type; refuses what does not fit, by the client's own name.

The coordinator knows the ranges. Null is the same as absent, everywhere.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

from minedraft.errors import InvalidRequestError
from minedraft.transport.fields import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_ID: Final = 2**32 - 1


def parse(raw: bytes) -> Body:
    """Read the body of a request.

    Raises:
        InvalidRequestError: no JSON object, or nested too deep.
    """
    try:
        values = json.loads(raw)
    except RecursionError:
        raise InvalidRequestError("the body is nested too deep") from None
    except ValueError as err:  # UnicodeDecodeError is one; so is an integer of 5000 digits
        where = f" at character {err.pos}" if isinstance(err, json.JSONDecodeError) else ""
        raise InvalidRequestError(f"the body is not valid JSON{where}") from None
    if not isinstance(values, dict):
        raise InvalidRequestError("the body is not a JSON object")
    return Body(values)


def refuse(name: str, value: object, want: str) -> NoReturn:
    """Refuse a value.

    Raises:
        InvalidRequestError: always; names the field and the value.
    """
    field = name.partition("[")[0].partition(".")[0]
    raise InvalidRequestError(f"{name} is {shown(value)}, want {want}", field=field)


class Body:
    """The fields of one request.

    Args:
        values: As the JSON has them.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def raw(self, name: str) -> Any:  # noqa: ANN401  # whatever the client sent
        """Return a field as it came; None: absent or null."""
        return self._values.get(name)

    def has(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self._values.get(name) is not None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Read true or false."""
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            refuse(name, value, "true or false")
        return value

    def integer(self, name: str) -> int | None:
        """Read an integer; 16.0 is one."""
        value = self._values.get(name)
        return None if value is None else as_integer(name, value)

    def number(self, name: str) -> float | None:
        """Read a number."""
        value = self._values.get(name)
        return None if value is None else as_number(name, value)

    def text(self, name: str) -> str | None:
        """Read a text."""
        value = self._values.get(name)
        return None if value is None else as_text(name, value)

    def texts(self, name: str) -> list[str]:
        """Read a text, or a list of texts."""
        value = self._values.get(name)
        if value is None:
            return []
        if isinstance(value, str):
            return [as_text(name, value)]
        if not isinstance(value, list):
            refuse(name, value, "a string or a list of strings")
        return [as_text(f"{name}[{index}]", each) for index, each in enumerate(value)]

    def ids(self, name: str) -> list[int]:
        """Read a list of token ids."""
        value = self._values.get(name)
        return [] if value is None else as_ids(name, value)


def as_integer(name: str, value: object) -> int:
    """Read an integer of the field `name`."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        refuse(name, value, "an integer")
    return value


def as_number(name: str, value: object) -> float:
    """Read a number of the field `name`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        refuse(name, value, "a number")
    try:
        return float(value)
    except OverflowError:
        refuse(name, value, "a number of a double's range")


def as_text(name: str, value: object) -> str:
    """Read a text of the field `name`; JSON can spell half a character, which is no text."""
    if not isinstance(value, str):
        refuse(name, value, "a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as err:
            field = name.partition("[")[0]
            raise InvalidRequestError(
                f"{name} has half a surrogate pair at character {err.start}", field=field
            ) from None
    return value


def as_ids(name: str, value: object) -> list[int]:
    """Read a list of token ids of the field `name`."""
    if not isinstance(value, list):
        refuse(name, value, "a list of token ids")
    if value and not (set(map(type, value)) == {int} and min(value) >= 0 and max(value) <= _MAX_ID):
        for index, each in enumerate(value):
            if type(each) is not int or not 0 <= each <= _MAX_ID:
                refuse(f"{name}[{index}]", each, f"a token id, 0..{_MAX_ID}")
    return value
