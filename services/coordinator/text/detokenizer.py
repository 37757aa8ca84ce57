"""Turns a growing sequence of ids into text, delta by delta.

Refuses to let out half a character: bytes wait until they are one, or can never be one (then
U+FFFD stands for them). What a run of ids gives does not depend on how it was cut into pushes,
and each id costs the same however long the output is. Pure: no I/O.
"""

from __future__ import annotations

import codecs
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from minedraft.services.coordinator.text.token_pieces import Pieces
    from minedraft.services.coordinator.text.tokenizer import Tokenizer

_CONTEXT_TOKENS: Final = 6
"""Tokens of the prompt's end that the library decodes along with the output, for spaces."""
_MAX_UNREAD_TOKENS: Final = 4
"""Tokens after which the detokenizer releases text although it ends in U+FFFD."""
_MAX_LOOK_BACK_TOKENS: Final = 4096
"""Tokens of the prompt's end that are searched for ones with text."""
_CONTEXT_BYTES: Final = 4
"""Bytes of the prompt's end that matter: the longest character of UTF-8."""
_BROKEN: Final = "\ufffd"


class Detokenizer:
    """Text of one output.

    Where the tokenizer's decoder works token by token (byte-level BPE, SentencePiece), the deltas
    are the library's own text for the whole sequence, with one difference that streaming forces:
    the SentencePiece decoder turns a good character into U+FFFD when a stray byte follows it;
    here the character, once out, stays.

    Args:
        tokenizer: Of the target.
        prompt_token_ids: The output continues their text; it is not repeated.
        skip_special_tokens: Whether special tokens have no text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset[int]()
        self._stream: _Stream
        if tokenizer.pieces is not None:
            visible = self._visible_tail(prompt_token_ids, _CONTEXT_BYTES)
            is_first = not visible and len(prompt_token_ids) <= _MAX_LOOK_BACK_TOKENS
            self._stream = _PieceStream(tokenizer, tokenizer.pieces, visible, is_first=is_first)
        else:
            visible = self._visible_tail(prompt_token_ids, 0)
            self._stream = _WindowStream(tokenizer, visible)

    def push(self, token_ids: Iterable[int]) -> str:
        """Take the next ids, any number; return the text that is final now."""
        step, skipped, size = self._stream.step, self._skipped, self._tokenizer.vocab_size
        # Ids beyond the vocabulary are the padding of the embedding: tokens without text.
        return "".join(
            step(index) for index in token_ids if 0 <= index < size and index not in skipped
        )

    def flush(self) -> str:
        """Return the rest at the end: U+FFFD if the output ends inside a character."""
        return self._stream.flush()

    def _visible_tail(self, prompt_token_ids: Sequence[int], num_bytes: int) -> list[int]:
        """Return the prompt's last `_CONTEXT_TOKENS` with text, and that many bytes."""
        tail: deque[int] = deque()
        for index in reversed(prompt_token_ids[-_MAX_LOOK_BACK_TOKENS:]):
            piece = b"" if index in self._skipped else self._tokenizer.token_bytes(index)
            if not piece:
                continue
            tail.appendleft(index)
            num_bytes -= len(piece)
            if len(tail) >= _CONTEXT_TOKENS and num_bytes <= 0:
                break
        return list(tail)


class _Stream(Protocol):
    """Takes one id; returns the text that became final."""

    def step(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


class _PieceStream:
    """Decode bytes: every token has its own."""

    def __init__(
        self, tokenizer: Tokenizer, pieces: Pieces, context: Sequence[int], *, is_first: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")(pieces.errors)
        self._is_first = is_first
        self._strip, self._num_strip = pieces.strip_left if is_first else ("", 0)
        # A prompt of ids may end inside a character, which the output then completes.
        self._decoder.decode(b"".join(tokenizer.token_bytes(index) for index in context))
        self._num_borrowed = len(self._decoder.getstate()[0])

    def step(self, token_id: int) -> str:
        if self._is_first:
            self._is_first = False
            token = self._tokenizer.token(token_id) or ""
            text = self._decoder.decode(self._pieces.bytes_of(token, is_first=True))
        else:
            text = self._decoder.decode(self._tokenizer.token_bytes(token_id))
        if self._num_borrowed and text:
            text = self._drop_borrowed(text)
        if self._num_strip and text:
            text = self._strip_left(text)
        return text

    def flush(self) -> str:
        if self._num_borrowed:  # nothing but the prompt's own broken end, or some more of it
            self._num_borrowed = 0
            self._decoder.reset()
            return ""
        return self._decoder.decode(b"", final=True)

    def _drop_borrowed(self, text: str) -> str:
        """Leave out the U+FFFD of bytes that the prompt began and the output did not continue."""
        broken = self._num_borrowed if self._pieces.byte_fallback else 1
        self._num_borrowed = 0
        return text.removeprefix(_BROKEN * broken)

    def _strip_left(self, text: str) -> str:
        while self._num_strip and text.startswith(self._strip):
            text = text[1:]
            self._num_strip -= 1
        if text:
            self._num_strip = 0
        return text


class _WindowStream:
    """Ask the library for the text of the last few tokens, with and without the new one.

    For decoders that look at neighbours. Cannot be exact for every sequence (such a decoder may
    change text that is out already), but loses nothing and never raises.
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._known = list(context)  # tokens whose text is out
        self._unread: list[int] = []  # tokens whose text is not

    def step(self, token_id: int) -> str:
        self._unread.append(token_id)
        before, after = self._decode(self._known), self._decode([*self._known, *self._unread])
        text = after[len(before) :]
        if text.endswith(_BROKEN) and len(self._unread) < _MAX_UNREAD_TOKENS:
            return ""
        self._advance()
        return text

    def flush(self) -> str:
        before, after = self._decode(self._known), self._decode([*self._known, *self._unread])
        self._advance()
        return after[len(before) :]

    def _advance(self) -> None:
        self._known = [*self._known, *self._unread][-_CONTEXT_TOKENS:]
        self._unread = []

    def _decode(self, ids: list[int]) -> str:
        try:
            return self._tokenizer.decode(ids, skip_special_tokens=False)
        except Exception:  # noqa: BLE001 the library's only class; a request must survive it
            return "".join(self._tokenizer.token(index) or "" for index in ids)
