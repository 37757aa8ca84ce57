"""Reads numbers and quotes values of the command line. Pure."""

from __future__ import annotations

from minedraft.errors import ConfigError
from minedraft.plain_text import plain

_MOST = 60


def short(text: str) -> str:
    """Quote at most 60 characters of a value."""
    return repr(plain(text[:_MOST])) + ("..." if len(text) > _MOST else "")


def number_in(field: str, text: str, low: float, high: float) -> float:
    """Read a number.

    Raises:
        ConfigError: it is none, or not within bounds; names the field and the value.
    """
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"{field}={short(text)}: want a number") from None
    if not low <= value <= high:  # NaN is in no range
        raise ConfigError(f"{field}={short(text)}: want {low:g}..{high:g}")
    return value
