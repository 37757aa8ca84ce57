"""Consoles that print text as plain text: no markup, no control sequences."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from minedraft.plain_text import LINES, plain, plain_json


class PlainConsole(Console):
    """Prints strings as plain text. Build tables from `cell`.

    Args:
        stderr: Write to stderr.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    @property
    def encoding(self) -> str:
        """Encoding of the current stream. Without UTF-8, rich draws tables in ASCII."""
        return (getattr(self.file, "encoding", None) or "utf-8").lower()

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401  # as rich has it
        """Print as rich does, but strings as plain text."""
        super().print(
            *(_text(each) if isinstance(each, str) else each for each in objects), **options
        )

    def write(self, text: str, *, end: str = "\n") -> None:
        """Write text without control sequences, unwrapped, with its tabs."""
        self.file.write(plain(text, keep=LINES) + end)
        self.file.flush()

    def document(self, value: object) -> None:
        """Write a value as JSON."""
        self.write(plain_json(value, ascii_only=not self.encoding.startswith("utf")))


def cell(value: str, *, most: int = 500) -> Text:
    """Build one line of text with at most `most` characters."""
    shown = plain(value[: most + 1])
    return Text(shown if len(shown) <= most else f"{shown[:most]} ...")


def _text(value: str) -> Text:
    return Text(plain(value, keep=LINES))
