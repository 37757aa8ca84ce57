"""Keeps a caller's text from becoming control tokens.

The tokenizers library reads a special token wherever its spelling stands in a text, also amid what
a user typed. So this makes a copy of the target's tokenizer whose control tokens have the same ids
and secret spellings, drawn per process. What a template writes is respelled, what a caller writes
is not, and one call of the library encodes both. Merges, prefixes and stripping stay the model's
own. Refuses a tokenizer whose copy gives other ids.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import tokenizers

from minedraft.errors import InvalidRequestError, ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_MARKUP: Final = re.compile(r"[^\w\s].*\w.*[^\w\s]", re.DOTALL)
"""The look of a control token, unlike a word or a run of spaces."""
_PREFIX_CHARS: Final = 2
_STAND_INS: Final = range(0xF0000, 0x10FFFE)
"""Private-use characters: no tokenizer and no template gives them a meaning."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Contents of messages in which control tokens are hidden."""

    contents: list[str]
    back: dict[int, str]
    """Table for `str.translate` that restores a text."""
    is_last: bool = False


class ControlTokens:
    """The control tokens of a tokenizer, and a copy of it that knows them by other names.

    Control tokens are the added tokens that are special, and those that the chat template writes
    and that look like markup: Qwen's `<tool_response>` is not special, and yet says who speaks.

    Args:
        backend: Of the target.
        template_source: Of its chat template; empty if it has none.

    Raises:
        ModelError: The tokenizer cannot be copied.
    """

    def __init__(self, backend: tokenizers.Tokenizer, template_source: str) -> None:
        added = backend.get_added_tokens_decoder()
        self._special = frozenset(
            token.content for token in added.values() if token.special and token.content.strip()
        )
        written = frozenset(
            token.content
            for token in added.values()
            if _MARKUP.fullmatch(token.content) and token.content in template_source
        )
        control = self._special | written
        self._single_words = frozenset(t.content for t in added.values() if t.single_word)
        self._names = {spelling: secrets.token_hex(16) for spelling in sorted(control)}
        self._back = {name: spelling for spelling, name in self._names.items()}
        self._any_name = re.compile("|".join(self._back)) if self._back else None
        self._source = template_source
        self._first_chars = frozenset(spelling[0] for spelling in control)
        self._lengths: dict[str, list[int]] = {}  # of all added tokens, by how they begin
        for spelling in sorted({t.content for t in added.values()}, key=len, reverse=True):
            lengths = self._lengths.setdefault(spelling[:_PREFIX_CHARS], [])
            if len(spelling) not in lengths:
                lengths.append(len(spelling))
        self._spellings = frozenset(t.content for t in added.values())
        prefixes = "|".join(map(re.escape, self._lengths))
        # Of no width, so that a place where two of them overlap is looked at twice.
        self._places = re.compile(f"(?={prefixes})") if prefixes else None
        self.renamed: Final = _renamed(backend, self._names) if control else backend
        """Encodes the output of `respell`."""

    def respell(self, text: str, *, parse_special_tokens: bool) -> str:
        """Give control tokens in a text the names that `renamed` knows them by.

        Args:
            text: Written by whom control tokens are allowed to.
            parse_special_tokens: False: special ones stay the text that they are.
        """
        parts: list[str] = []
        done = 0
        for start, end in self._find(text):
            spelling = text[start:end]
            if spelling in self._names and (parse_special_tokens or spelling not in self._special):
                parts += text[done:start], self._names[spelling]
                done = end
        return "".join((*parts, text[done:]))

    def restore(self, text: str) -> str:
        """Give control tokens in a text that `renamed` decoded their own spellings again."""
        if self._any_name is None:
            return text
        return self._any_name.sub(lambda found: self._back[found[0]], text)

    def hide(self, contents: Sequence[str]) -> Iterator[Hidden]:
        """Yield changed contents that cannot become control tokens, from strict to lenient.

        The first character of every control token is replaced by a stand-in, so that lengths,
        spaces and ends stay: a template treats what is hidden like what it was. Unless it looks
        for a token in it (`'</think>' in content`), hence the later, more lenient ways.

        Args:
            contents: Of the messages.

        Yields:
            Ways of hiding; none if there is nothing to hide.

        Raises:
            InvalidRequestError: The contents leave no stand-in.
        """
        joined = "\n".join(contents)
        chars = sorted(char for char in self._first_chars if char in joined)
        if not chars:
            return
        hidden = dict(zip(chars, self._stand_ins(joined, len(chars)), strict=True))
        back = {ord(stand_in): char for char, stand_in in hidden.items()}
        everywhere = str.maketrans(hidden)
        yield Hidden([content.translate(everywhere) for content in contents], back)
        yield Hidden([self._hide_most(content, hidden) for content in contents], back)
        special = [self._hide_special(content, hidden) for content in contents]
        yield Hidden(special, back, is_last=True)

    def _hide_most(self, content: str, hidden: Mapping[str, str]) -> str:
        """Hide all but the added tokens that are not special."""
        everywhere = str.maketrans(dict(hidden))
        parts: list[str] = []
        done = 0
        for start, end in self._find(content):
            if content[start:end] not in self._special:
                parts += content[done:start].translate(everywhere), content[start:end]
                done = end
        return "".join((*parts, content[done:].translate(everywhere)))

    def _hide_special(self, content: str, hidden: Mapping[str, str]) -> str:
        """Hide whole special tokens only."""
        parts: list[str] = []
        done = 0
        for start, end in self._find(content):
            if content[start:end] in self._special:
                parts += content[done:start], hidden[content[start]], content[start + 1 : end]
                done = end
        return "".join((*parts, content[done:]))

    def _find(self, text: str) -> Iterator[tuple[int, int]]:
        """Find added tokens as the library does: the leftmost, and of those the longest."""
        done = 0
        for place in self._places.finditer(text) if self._places else ():
            start = place.start()
            if start < done:
                continue
            for length in (
                *self._lengths.get(text[start : start + _PREFIX_CHARS], ()),
                *self._lengths.get(text[start], ()),
            ):
                end = start + length
                if text[start:end] in self._spellings and self._stands_alone(text, start, end):
                    yield start, end
                    done = end
                    break

    def _stands_alone(self, text: str, start: int, end: int) -> bool:
        if text[start:end] not in self._single_words:
            return True
        around = text[max(start - 1, 0) : start] + text[end : end + 1]
        return not re.search(r"\w", around)

    def _stand_ins(self, joined: str, count: int) -> list[str]:
        taken = joined + self._source
        found: list[str] = []
        used: set[str] | None = None
        for code in _STAND_INS:
            char = chr(code)
            if char in (taken if used is None else used):
                used = used or set(taken)
                continue
            found.append(char)
            if len(found) == count:
                return found
        raise InvalidRequestError(
            "chat.messages use every private-use character of Unicode, want some left",
            field="chat.messages",
        )


def _renamed(backend: tokenizers.Tokenizer, names: Mapping[str, str]) -> tokenizers.Tokenizer:
    """Copy a tokenizer and change only the spelling of some tokens."""
    document: dict[str, Any] = json.loads(backend.to_str())
    for token in document["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    model = document["model"]
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        model["vocab"] = {names.get(piece, piece): index for piece, index in vocab.items()}
    elif vocab is not None:  # Unigram
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocab]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if model.get("merges"):  # a control token that plain text could be merged into
        model["merges"] = [pair for pair in model["merges"] if not _makes(pair, names)]
    try:
        copy = tokenizers.Tokenizer.from_str(json.dumps(document))
        del document, model, vocab
        for spelling, name in names.items():
            index = backend.token_to_id(spelling)
            if index not in copy.encode(name, add_special_tokens=False).ids:
                raise ModelError(
                    f"tokenizer: text cannot be told from special token {spelling!r}, id {index}"
                )
    except ModelError:
        raise
    except Exception as err:  # the library raises nothing narrower
        raise ModelError(f"tokenizer: special tokens cannot be told from text: {err}") from err
    return copy


def _makes(pair: str | Iterable[str], names: Mapping[str, str]) -> bool:
    left, right = pair.split(" ", 1) if isinstance(pair, str) else pair
    return left in names or right in names or left + right in names
