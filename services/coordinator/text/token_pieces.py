"""The bytes of each token, from the decoder that a tokenizer.json describes.

Refuses to guess: a decoder that does more than look at one token at a time (WordPiece, CTC, ...)
has no pieces, and the detokenizer then asks the tokenizers library itself. Pure: no I/O.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EACH_BYTE: Final = "minedraft-each-byte"
"""Name of a codec error handler: one U+FFFD for every byte that is part of no character.

That is how the `ByteFallback` decoder of the tokenizers library counts; Python's own `replace`
and byte-level decoders give one for a whole broken sequence.
"""

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(EACH_BYTE, _replace_each_byte)


def _byte_level_alphabet() -> dict[str, int]:
    """Map the 256 printable stand-ins of byte-level BPE to bytes (GPT-2's table)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    alphabet = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if chr(byte) not in alphabet]
    return alphabet | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_ALPHABET: Final = _byte_level_alphabet()


@dataclass(frozen=True, slots=True)
class Pieces:
    """Turns tokens into bytes, one at a time."""

    byte_level: bool = False
    """Characters of a token stand for bytes (GPT-2, Llama 3, Qwen, SmolLM)."""
    replacements: tuple[tuple[str, str], ...] = ()
    """Strings to exchange in a token, such as U+2581 for a space (SentencePiece)."""
    byte_fallback: bool = False
    """Tokens like `<0xE4>` are one byte."""
    strip_left: tuple[str, int] = ("", 0)
    """Character, and how many of it to drop where the text begins."""
    drop_first: str = ""
    """What vanishes from the first token of a text (Metaspace's dummy prefix)."""

    @property
    def errors(self) -> str:
        """Codec error handler under which the bytes decode as the library decodes them."""
        return EACH_BYTE if self.byte_fallback else "replace"

    def bytes_of(self, token: str, *, is_first: bool = False) -> bytes:
        """Return the bytes of one token.

        Args:
            token: Its string in the vocabulary.
            is_first: Whether no visible token is before it.
        """
        if self.byte_level:
            try:
                return bytes([_ALPHABET[char] for char in token])
            except KeyError:  # an added token: text, not bytes in disguise
                return token.encode("utf-8", "replace")
        if self.byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        if is_first and self.drop_first:
            token = token.replace(self.drop_first, "")
        for pattern, content in self.replacements:
            token = token.replace(pattern, content)
        return token.encode("utf-8", "replace")


def read_pieces(decoder: Mapping[str, Any] | None) -> Pieces | None:
    """Read the `decoder` entry of a tokenizer.json.

    Returns:
        None if the decoder is absent or looks at more than one token at a time.
    """
    if decoder is None:
        return None
    stages = decoder.get("decoders", []) if decoder.get("type") == "Sequence" else [decoder]
    kinds = [stage.get("type") for stage in stages]
    if kinds == ["ByteLevel"]:
        return Pieces(byte_level=True)
    if kinds == ["Metaspace"]:
        mark = str(stages[0].get("replacement", "\u2581"))
        drops = stages[0].get("prepend_scheme", "always") != "never"
        return Pieces(replacements=((mark, " "),), drop_first=mark if drops else "")
    return _sentencepiece(stages, kinds)


def _sentencepiece(stages: Sequence[Mapping[str, Any]], kinds: Sequence[object]) -> Pieces | None:
    """Read Replace*, ByteFallback?, Fuse?, Strip?: the forms that converted SentencePiece takes."""
    order = {"Replace": 0, "ByteFallback": 1, "Fuse": 2, "Strip": 3}
    ranks = [order.get(str(kind), -1) for kind in kinds]
    if not ranks or -1 in ranks or ranks != sorted(ranks):
        return None
    if any(kinds.count(kind) > 1 for kind in ("ByteFallback", "Fuse", "Strip")):
        return None
    replacements: list[tuple[str, str]] = []
    strip = ("", 0)
    for kind, stage in zip(kinds, stages, strict=True):
        if kind == "Replace":
            pattern = stage.get("pattern", {}).get("String")
            if not pattern:  # a regular expression: it may look across characters
                return None
            replacements.append((str(pattern), str(stage.get("content", ""))))
        if kind == "Strip":
            if "Fuse" not in kinds or stage.get("stop"):  # per token, or at an end we cannot know
                return None
            strip = (str(stage.get("content", " ")), int(stage.get("start", 0)))
    return Pieces(
        replacements=tuple(replacements),
        byte_fallback="ByteFallback" in kinds,
        strip_left=strip,
    )
