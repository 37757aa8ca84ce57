"""The target's tokenizer: text to ids and back, from the files of a model directory.

Reads tokenizer.json with the tokenizers library. Refuses everything else: no Python code of a
model, no transformers, no torch. Immutable once loaded; safe to use from several threads.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import tokenizers

from minedraft.errors import ModelError
from minedraft.fingerprint import TOKENIZER_FILE, fingerprint_of, read_tokenizer_json
from minedraft.services.coordinator.chat_template import (
    ChatTemplate,
    find_template,
    special_tokens_of,
)
from minedraft.services.coordinator.prompt_encoder import PromptEncoder
from minedraft.services.coordinator.token_pieces import Pieces, read_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Tokenizer:
    """Vocabulary, chat template and end-of-sequence ids of one model.

    Use `from_directory`; the constructor takes what it has read.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        pieces: Pieces | None,
        fingerprint: str,
        eos_token_ids: Sequence[int] = (),
        chat_template: ChatTemplate | None = None,
    ) -> None:
        # A tokenizer.json may carry the truncation and padding of its training.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._pieces = pieces
        self._chat_template = chat_template
        self._bytes: dict[int, bytes] = {}  # cache; at most the vocabulary
        self._fingerprint = fingerprint
        self._eos_token_ids = tuple(eos_token_ids)
        self._special_ids = frozenset(
            index for index, added in backend.get_added_tokens_decoder().items() if added.special
        )
        self._vocab_size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @classmethod
    def from_directory(cls, path: str | Path) -> Self:
        """Load the tokenizer of a model directory. Takes about a second for 150k tokens.

        Raises:
            ModelError: No tokenizer.json, or a file that cannot be used.
        """
        model_dir = Path(path)
        file = model_dir / TOKENIZER_FILE
        if not file.is_file():
            raise ModelError(f"{model_dir}: has no {TOKENIZER_FILE}, so text cannot be served")
        document = read_tokenizer_json(file)
        fingerprint = fingerprint_of(document, file)
        pieces = read_pieces(document.get("decoder"))
        del document  # tens of MB, and the backend needs room next
        try:
            backend = tokenizers.Tokenizer.from_file(str(file))
        except Exception as err:  # the library raises nothing narrower
            raise ModelError(f"{file}: the tokenizers library cannot load it: {err}") from err
        config = _read_json(model_dir / "tokenizer_config.json")
        special_tokens = special_tokens_of(
            config, _read_json(model_dir / "special_tokens_map.json")
        )
        template = find_template(model_dir, config)
        try:
            chat = ChatTemplate(template, special_tokens=special_tokens) if template else None
        except ModelError as err:
            raise ModelError(f"{model_dir}: {err}") from err
        return cls(
            backend,
            pieces=pieces,
            fingerprint=fingerprint,
            eos_token_ids=_eos_token_ids(model_dir, backend, special_tokens),
            chat_template=chat,
        )

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_chat` works."""
        return self._chat_template is not None

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a sequence; empty if the model names none."""
        return self._eos_token_ids

    @property
    def vocab_size(self) -> int:
        """Largest id + 1, added tokens included. The model's embedding may be larger (padded)."""
        return self._vocab_size

    @cached_property
    def longest_token_bytes(self) -> int:
        """Bytes of text that one token stands for at the most."""
        return max(map(len, map(self.token_bytes, range(self._vocab_size))), default=0)

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that `skip_special_tokens` leaves out of text."""
        return self._special_ids

    @property
    def fingerprint(self) -> str:
        """As `minedraft.fingerprint.tokenizer_fingerprint` gives it."""
        return self._fingerprint

    @property
    def pieces(self) -> Pieces | None:
        """How tokens become bytes one by one; None if only the library knows."""
        return self._pieces

    @cached_property
    def prompts(self) -> PromptEncoder:
        """Encodes what callers write. Made on first use: it holds a second vocabulary.

        Raises:
            ModelError: Its special tokens cannot be told from text.
        """
        return PromptEncoder(self._backend, self._chat_template)

    def encode(self, text: str, *, parse_special_tokens: bool = False) -> list[int]:
        """See `PromptEncoder.encode`."""
        return self.prompts.encode(text, parse_special_tokens=parse_special_tokens)

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """See `PromptEncoder.encode_chat`."""
        return self.prompts.encode_chat(messages)

    def encode_bad_word(self, word: str) -> list[tuple[int, ...]]:
        """See `PromptEncoder.encode_bad_word`."""
        return self.prompts.encode_bad_word(word)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:  # noqa: FBT001, FBT002 the name that transformers users know
        """Turn ids into text at once. Ids beyond the vocabulary (padding) are nothing."""
        known = [index for index in ids if 0 <= index < self._vocab_size]
        return str(self._backend.decode(known, skip_special_tokens=skip_special_tokens))

    def token(self, token_id: int) -> str | None:
        """Give a token as the vocabulary spells it; None beyond the vocabulary."""
        if not 0 <= token_id < self._vocab_size:
            return None
        return self._backend.id_to_token(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """Give the bytes a token stands for: part of a character, or several; none for padding."""
        known = self._bytes.get(token_id)
        if known is None:
            token = self.token(token_id)
            if token is None:
                return b""  # not cached: any int may be asked for
            if self._pieces is None:
                known = token.encode("utf-8", "replace")
            else:
                known = self._pieces.bytes_of(token)
            self._bytes[token_id] = known
        return known


def _read_json(path: Path) -> Mapping[str, Any]:
    """Parse a file that may be missing; then empty."""
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as err:
        raise ModelError(f"{path}: not a readable JSON file: {err}") from err
    if not isinstance(document, dict):
        raise ModelError(f"{path}: is a {type(document).__name__}, want a JSON object")
    return document


def _eos_token_ids(
    model_dir: Path, backend: tokenizers.Tokenizer, special_tokens: Mapping[str, str]
) -> tuple[int, ...]:
    """Find what ends a sequence: generation_config.json, else config.json, else the tokenizer."""
    for name in ("generation_config.json", "config.json"):
        path = model_dir / name
        config = _read_json(path)
        found = config.get("eos_token_id")
        if found is None and isinstance(config.get("text_config"), dict):
            found = config["text_config"].get("eos_token_id")  # Gemma 3 and other composites
        if found is None:
            continue
        ids = found if isinstance(found, list) else [found]
        if not all(type(index) is int and index >= 0 for index in ids):
            raise ModelError(f"{path}: eos_token_id is {found!r}, want one or more token ids")
        if ids:
            return tuple(dict.fromkeys(ids))
    token = special_tokens.get("eos_token")
    index = backend.token_to_id(token) if token is not None else None
    return () if index is None else (index,)
