"""Messages between the coordinator and the processes that tokenize for it. Pure.

A frame is a JSON header and raw bytes: texts travel as UTF-8, ids as 32-bit numbers, so that
neither side builds anything per character or per token under the interpreter's lock.
"""

from __future__ import annotations

import json
import struct
from array import array
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from minedraft.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX: Final = struct.Struct("<II")
"""Bytes of the header and of the body."""
MAX_HEADER_BYTES: Final = 1 << 20
MAX_BODY_BYTES: Final = 1 << 26
_IDS: Final = "I"

Kind = Literal["text", "chat", "bad_words", "ids"]
FIELDS: Final[dict[Kind, str]] = {
    "text": "text",
    "chat": "chat.messages",
    "bad_words": "sampling.bad_words",
    "ids": "token_ids",
}
"""The field of a request that an order is about."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order to tokenize, or to turn ids into text."""

    kind: Kind
    texts: tuple[str, ...] = ()
    """One text, the contents of messages, or words."""
    roles: tuple[str, ...] = ()
    """Roles of the messages."""
    parse_special_tokens: bool = False
    max_tokens: int = 0
    """More ids than this are counted and not sent."""
    max_chars: int = 0
    """Longest text that the template may make."""
    add_special_tokens: bool = True
    ids: tuple[int, ...] = ()
    """What to turn into text."""
    skip_special_tokens: bool = False
    max_bytes: int = 0
    """More text than this is not sent."""

    def to_frame(self) -> bytes:
        """For the wire.

        Raises:
            UnicodeEncodeError: a lone surrogate.
        """
        parts = [text.encode() for text in self.texts]
        header = {
            "kind": self.kind,
            "sizes": [len(part) for part in parts],
            "roles": self.roles,
            "parse": self.parse_special_tokens,
            "max_tokens": self.max_tokens,
            "max_chars": self.max_chars,
            "add": self.add_special_tokens,
            "skip": self.skip_special_tokens,
            "max_bytes": self.max_bytes,
        }
        return frame(header, b"".join((*parts, array(_IDS, self.ids).tobytes())))

    @classmethod
    def from_frame(cls, header: dict[str, Any], body: bytes) -> Self:
        """Decode from the wire."""
        edges = list(accumulate(header["sizes"], initial=0))
        ids = array(_IDS)
        ids.frombytes(body[edges[-1] :])
        return cls(
            header["kind"],
            tuple(body[start:end].decode() for start, end in pairwise(edges)),
            tuple(header["roles"]),
            header["parse"],
            header["max_tokens"],
            header["max_chars"],
            header["add"],
            tuple(ids),
            header["skip"],
            header["max_bytes"],
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer: lists of ids, a text, or an error."""

    ids: Sequence[Sequence[int]] = ()
    """One list for a text or chat, any number for bad words."""
    num_tokens: int = 0
    """Number of ids, even if they are too many to send."""
    error: str = ""
    field: str = ""
    is_last: bool = False
    """Whether the process ends after this answer."""
    text: str = ""

    def to_frame(self) -> bytes:
        """Encode for the wire."""
        header = {
            "counts": [len(numbers) for numbers in self.ids],
            "num_tokens": self.num_tokens,
            "error": self.error,
            "field": self.field,
            "last": self.is_last,
        }
        lists = (array(_IDS, numbers).tobytes() for numbers in self.ids)
        return frame(header, b"".join((*lists, self.text.encode())))

    @classmethod
    def from_frame(cls, header: dict[str, Any], body: bytes) -> Self:
        """From the wire.

        Raises:
            ProtocolError: not an answer.
        """
        try:
            edges = list(accumulate(header["counts"], initial=0))
            num_bytes = edges[-1] * array(_IDS).itemsize
            numbers = array(_IDS)
            numbers.frombytes(body[:num_bytes])
            return cls(
                tuple(tuple(numbers[start:end]) for start, end in pairwise(edges)),
                int(header["num_tokens"]),
                str(header["error"]),
                str(header["field"]),
                bool(header["last"]),
                body[num_bytes:].decode(),
            )
        except (LookupError, TypeError, ValueError) as err:
            raise ProtocolError(f"text: a malformed answer: {err}") from err


def frame(header: dict[str, Any], body: bytes) -> bytes:
    """Build a frame."""
    head = json.dumps(header).encode()
    return PREFIX.pack(len(head), len(body)) + head + body


def sizes(prefix: bytes) -> tuple[int, int]:
    """Bytes of header and body.

    Raises:
        ProtocolError: more than there can be.
    """
    header, body = PREFIX.unpack(prefix)
    if header > MAX_HEADER_BYTES or body > MAX_BODY_BYTES:
        raise ProtocolError(f"text: a frame of {header} and {body} bytes")
    return header, body
