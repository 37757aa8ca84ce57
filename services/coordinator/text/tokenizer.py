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

from minedraft.errors import ModelError, StateError
from minedraft.model_files.added_tokens import TOKENIZER_FILE, AddedToken
from minedraft.model_files.chat_templates import read_template_sources
from minedraft.model_files.json_file import MAX_TOKENIZER_BYTES, one_line, read_bytes
from minedraft.model_files.token_facts import read_token_facts
from minedraft.services.coordinator.text.chat_template import ChatTemplate
from minedraft.services.coordinator.text.prompt_encoder import PromptEncoder
from minedraft.services.coordinator.text.token_pieces import Pieces, read_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from minedraft.model_files.token_facts import TokenFacts


class Tokenizer:
    """Vocabulary and chat template of one model.

    Use `from_directory`; the constructor takes what it has read. What ends a sequence is the
    target's to say: a verifier tells it from the same files.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        facts: TokenFacts,
        chat_template: ChatTemplate | None = None,
        template_names: Sequence[str] = (),
    ) -> None:
        # A tokenizer.json may carry the truncation and padding of its training.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._pieces = read_pieces(facts.decoder)
        self._chat_template = chat_template
        self._template_names = tuple(template_names)
        self._bytes: dict[int, bytes] = {}  # cache; at most the vocabulary
        self._fingerprint = facts.fingerprint
        self._named_tokens = dict(facts.named_tokens or {})
        self._special_ids = frozenset(
            index for index, added in backend.get_added_tokens_decoder().items() if added.special
        )
        self._vocab_size = facts.num_ids
        # As the vocabulary spells them: what stands for a byte or a space has at least one itself.
        spellings = backend.get_vocab(with_added_tokens=True)
        self._longest_token_bytes = max((len(s.encode()) for s in spellings), default=0)

    @classmethod
    def from_directory(cls, path: str | Path) -> Self:
        """Load the tokenizer of a model directory. Takes about a second for 150k tokens.

        Raises:
            ModelError: No tokenizer.json, or a file that cannot be used.
        """
        model_dir = Path(path)
        facts = read_token_facts(model_dir)
        file = model_dir / TOKENIZER_FILE
        content = read_bytes(file, MAX_TOKENIZER_BYTES)
        if content is None:
            raise ModelError(f"{model_dir}: has no {TOKENIZER_FILE}, so text cannot be served")
        backend = _backend(file, content, facts)
        del content  # tens of MB
        sources = read_template_sources(model_dir)
        try:
            chat = (
                ChatTemplate(sources.default, special_tokens=facts.named_tokens)
                if sources.default
                else None
            )
        except ModelError as err:
            raise ModelError(f"{model_dir}: {err}") from err
        return cls(backend, facts=facts, chat_template=chat, template_names=sources.names)

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_chat` works."""
        return self._chat_template is not None

    @property
    def chat_template(self) -> str:
        """Jinja source of the chat template; empty without one."""
        return self._chat_template.source if self._chat_template else ""

    @property
    def named_tokens(self) -> Mapping[str, str]:
        """Name to token: `bos_token`, `eos_token` and their like."""
        return self._named_tokens

    @property
    def vocab_size(self) -> int:
        """Largest id + 1, added tokens included. The model's embedding may be larger (padded)."""
        return self._vocab_size

    @property
    def longest_token_bytes(self) -> int:
        """Length in bytes of the longest token."""
        return self._longest_token_bytes

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that `skip_special_tokens` leaves out of text."""
        return self._special_ids

    @property
    def fingerprint(self) -> str:
        """Equal to `minedraft.fingerprint.tokenizer_fingerprint` of the directory."""
        return self._fingerprint

    @property
    def pieces(self) -> Pieces | None:
        """Turns tokens into bytes; None if only the library can."""
        return self._pieces

    @cached_property
    def prompts(self) -> PromptEncoder:
        """Encodes text of callers. Made on first use: it holds a second vocabulary.

        Raises:
            ModelError: Its special tokens cannot be told from text.
        """
        return PromptEncoder(self._backend, self._chat_template, self._template_names)

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
        """Turn ids into text at once. Ids beyond the vocabulary (padding) give no text."""
        known = [index for index in ids if 0 <= index < self._vocab_size]
        try:
            return str(self._backend.decode(known, skip_special_tokens=skip_special_tokens))
        except BaseException as err:
            if type(err).__name__ != "PanicException":  # the library's, and no Exception
                raise
            raise StateError(f"the tokenizer panicked at {len(known)} ids") from None

    def token(self, token_id: int) -> str | None:
        """Return a token as the vocabulary spells it; None beyond the vocabulary."""
        if not 0 <= token_id < self._vocab_size:
            return None
        return self._backend.id_to_token(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of a token: part of a character, or several; none for padding."""
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


def _backend(file: Path, content: bytes, facts: TokenFacts) -> tokenizers.Tokenizer:
    """Build the library's tokenizer, and correct it by all files of the directory."""
    try:
        backend = tokenizers.Tokenizer.from_buffer(content)
        if facts.replaced_parts:
            _replace_parts(backend, facts.replaced_parts)
        backend.add_tokens([_added_token(token) for token in facts.extra_tokens])
        known = {
            token.content: index for index, token in backend.get_added_tokens_decoder().items()
        }
    except BaseException as err:
        # The library raises nothing narrower than Exception, and a panic of its Rust code is none.
        if not isinstance(err, Exception) and type(err).__name__ != "PanicException":
            raise
        raise ModelError(f"{file}: the tokenizers library cannot load it: {one_line(err)}") from err
    if known != facts.added_ids:
        odd = sorted(set(known.items()) ^ set((facts.added_ids or {}).items()))
        raise ModelError(f"{file}: added_tokens: the tokenizers library reads them as {odd[:3]}")
    return backend


def _replace_parts(backend: tokenizers.Tokenizer, parts: Mapping[str, Any]) -> None:
    """Replace parts of a tokenizer by parts in the form of a tokenizer.json."""
    model = {"type": "BPE", "vocab": {}, "merges": []}
    donor = tokenizers.Tokenizer.from_str(json.dumps({"model": model, "added_tokens": [], **parts}))
    for name in parts:
        setattr(backend, name, getattr(donor, name))


def _added_token(token: AddedToken) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=token.special,
    )
