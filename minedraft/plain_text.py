r"""Makes text of others plain, so that it can neither steer a terminal nor fake a line.

Pure. A model's name, a worker's last error and a generated text come from peers. What a terminal
obeys or hides (ESC and the other control characters, C1 and DEL among them, overrides of the
direction, line separators, tags, halves of surrogate pairs) is shown as its escape: `\x1b`.
"""

from __future__ import annotations

import json
import re
from typing import Final

LINES: Final = "\n\t"
"""Characters that `plain` keeps in a text of several lines."""

_STEERS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u180e\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]"
)
"""Not the joiners, marks and spaces of no width that scripts and emoji are written with."""


def plain(text: str, *, keep: str = "") -> str:
    r"""Replace control characters by escapes.

    Args:
        text: Anything.
        keep: Characters that stay: `LINES`, or none where one line is wanted.

    Example:
        >>> plain("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    return _STEERS.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def plain_json(value: object, *, ascii_only: bool = False) -> str:
    """Write a document for people and programs: the same value, in plain text."""
    text = json.dumps(value, indent=2, ensure_ascii=ascii_only)
    return _STEERS.sub(lambda found: found[0] if found[0] == "\n" else _quote(found[0]), text)


def plain_xml(text: str) -> str:
    """Escape text for an XML document, which may not have control characters at all."""
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _quote(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"
