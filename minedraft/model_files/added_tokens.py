"""Added and special tokens, from all files of a model directory together.

tokenizer.json, tokenizer_config.json, special_tokens_map.json and added_tokens.json each may name
some. This merges them as transformers' tokenizers do, and refuses what cannot be so: one id with
two contents, one content with two ids. Pure: takes what was read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from minedraft.model_files.json_file import JsonObject, is_integer, refusal
from minedraft.types import MAX_VOCAB_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENIZER_FILE: Final = "tokenizer.json"
"""The only tokenizer format that is read: that of the tokenizers library."""
MAX_TOKEN_ID: Final = MAX_VOCAB_SIZE - 1
NAMED_TOKENS: Final = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""Special tokens that chat templates use by name."""


_ID_DIGITS: Final = len(str(MAX_TOKEN_ID))
Place: TypeAlias = "tuple[JsonObject, str]"
"""Object and field, for messages."""


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that the tokenizer finds in text before its model runs."""

    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True


@dataclass(frozen=True, slots=True)
class Sources:
    """The parsed files; None for a missing one."""

    tokenizer: JsonObject
    config: JsonObject | None = None
    """tokenizer_config.json."""
    special_tokens_map: JsonObject | None = None
    added_tokens: JsonObject | None = None
    """added_tokens.json: content to id."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All tokens with their properties."""

    ids: dict[str, int]
    """Content to id, added tokens included."""
    added: dict[int, AddedToken]
    """The added tokens among them."""
    extra: tuple[AddedToken, ...]
    """Those to add to what tokenizer.json says, in this order: new ones, and ones with other flags;
    the tokenizers library then gives them the ids of `ids`."""
    named: dict[str, str]
    """`bos_token` and its like: name to content."""


def merge(sources: Sources) -> Vocabulary:
    """Merge all files into one vocabulary, with the ids and flags that transformers gives.

    Raises:
        ModelError: The files contradict each other or themselves, or have another shape; names
            file, field, what was found and what is wanted.
    """
    found = _Assignment(sources.tokenizer)
    declared = _Declared(sources)
    extra: list[AddedToken] = []
    # As transformers: what tokenizer_config.json lists wins over the other files' flags, and what
    # a name refers to is special.
    names = declared.names()
    special = set(names.values())
    for where, index, token in declared.tokens():
        # A token with a name is special, whatever its entry says.
        true = replace(token, special=True) if token.content in special else token
        found.add(true, where, index)
        extra.append(true)
    for where, token in [*declared.named(), *declared.extra()]:
        if token.content in found.contents:
            continue
        found.add(token, where, None)
        extra.append(token)
    return Vocabulary(found.ids, found.added, tuple(extra), names)


class _Assignment:
    """Gives ids as the tokenizers library does: the vocabulary's own, else the next that is free.

    The library itself gives an added token another id than tokenizer.json says and only logs it,
    so every id that a file declares is compared.

    Args:
        tokenizer: Parsed tokenizer.json.
    """

    def __init__(self, tokenizer: JsonObject) -> None:
        self.ids, self._size = _model_vocabulary(tokenizer)
        self._taken = {index: token for token, index in self.ids.items()}
        if len(self._taken) != len(self.ids):
            token, index = next((t, i) for t, i in self.ids.items() if self._taken[i] != t)
            raise refusal(
                tokenizer.path, f"model.vocab[{token[:48]!r}]", index,
                f"an id of its own: it is that of {self._taken[index][:48]!r}",
            )  # fmt: skip
        self.added: dict[int, AddedToken] = {}
        self.contents: set[str] = set()
        self._last = -1
        for entry in tokenizer.parts("added_tokens"):
            declared = entry.integer("id", 0, MAX_TOKEN_ID)
            if declared is None:
                entry.refuse("id", "a token id")
            self.add(read_added_token(entry), (entry, "id"), declared)

    def add(self, token: AddedToken, where: Place, declared: int | None) -> None:
        """Add a token, or change the flags of one that is there.

        Args:
            token: The token.
            where: Object and field that name its id, for messages.
            declared: The id that the file gives it, if it gives one.
        """
        index = self.ids.get(token.content)
        if index is None:
            index = self._size if self._last < self._size else self._last + 1
        source, field = where
        if declared is not None and declared != index:
            other = self._taken.get(declared)
            why = f", for {declared} is {other!r}" if other not in {None, token.content} else ""
            raise refusal(
                source.path, source.name(field), declared,
                f"{index}, the id that {TOKENIZER_FILE} gives {token.content!r}{why}",
            )  # fmt: skip
        other = self._taken.setdefault(index, token.content)
        if other != token.content:
            raise refusal(
                source.path, source.name(field), token.content,
                f"{other!r}: {TOKENIZER_FILE} gives it id {index}",
            )  # fmt: skip
        self.ids[token.content] = index
        self.added[index] = token
        self.contents.add(token.content)
        self._last = max(self._last, index)


class _Declared:
    """The declarations of the files beside tokenizer.json."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        empty = JsonObject(sources.tokenizer.path.with_name("tokenizer_config.json"), {})
        self._config = sources.config or empty
        # As transformers: a list in tokenizer_config.json makes the two older files void.
        self._decoder = self._config.part("added_tokens_decoder")
        self._map = None if self._decoder is not None else sources.special_tokens_map
        self._older = None if self._decoder is not None else sources.added_tokens

    def tokens(self) -> list[tuple[Place, int, AddedToken]]:
        """Tokens with an id, by id."""
        if self._decoder is not None:
            found = self._listed(self._decoder)
        else:
            found = {} if self._older is None else self._listed_long_ago(self._older)
            for entry in self._sources.tokenizer.parts("added_tokens"):
                index, token = entry.values["id"], read_added_token(entry)
                where, older = found.get(index, ((entry, "id"), token))
                if older.content != token.content:
                    source, field = where
                    source.refuse(field, f"another id: {TOKENIZER_FILE} gives it {token.content!r}")
                found[index] = ((entry, "id"), token)
        return [(where, index, token) for index, (where, token) in sorted(found.items())]

    @staticmethod
    def _listed(decoder: JsonObject) -> dict[int, tuple[Place, AddedToken]]:
        found: dict[int, tuple[Place, AddedToken]] = {}
        for key in decoder.values:
            if not (key.isascii() and key.isdecimal()) or len(key) > _ID_DIGITS:
                raise refusal(decoder.path, decoder.at, key, "a token id as a key")
            entry = decoder.part(key)
            if entry is None:
                decoder.refuse(key, "an added token")
            found[int(key)] = ((decoder, key), read_added_token(entry))
        return found

    def _listed_long_ago(self, older: JsonObject) -> dict[int, tuple[Place, AddedToken]]:
        """Read added_tokens.json, which says nothing of flags."""
        special = {*self.names().values(), *(token.content for _, token in self.extra())}
        found: dict[int, tuple[Place, AddedToken]] = {}
        for content, index in older.values.items():
            if not content or not is_integer(index, 0, MAX_TOKEN_ID):
                older.refuse(content, "a token id")
            if index in found:
                older.refuse(content, f"an id of its own: {found[index][1].content!r} has it")
            is_special = content in special
            token = AddedToken(content, special=is_special, normalized=not is_special)
            found[index] = ((older, content), token)
        return found

    def named(self) -> Iterator[tuple[Place, AddedToken]]:
        """Return the tokens that have a name: `eos_token`, `image_token`."""
        for field, (source, value) in self._fields().items():
            if field.endswith("_token") and (token := _token(source, field, value)) is not None:
                yield (source, field), token
        for source, at, value in self._extra_sources():
            if isinstance(value, dict):
                inner = JsonObject(source.path, value, source.name(at))
                for field, entry in value.items():
                    token = _token(inner, field, entry)
                    if token is None:
                        inner.refuse(field, "a token")
                    yield (inner, field), token

    def names(self) -> dict[str, str]:
        """Name to content, of all that a name refers to."""
        return {field: token.content for (_, field), token in self.named()}

    def extra(self) -> Iterator[tuple[Place, AddedToken]]:
        """Return special tokens without a name."""
        for source, at, value in self._extra_sources():
            if not isinstance(value, list):
                continue
            for index, entry in enumerate(value):
                field = f"{at}[{index}]"
                token = _token(source, field, entry)
                if token is None:
                    raise refusal(source.path, source.name(field), entry, "a token")
                yield (source, field), token

    def _fields(self) -> dict[str, tuple[JsonObject, object]]:
        """Field to the file that decides it, and its value."""
        fields: dict[str, tuple[JsonObject, object]] = {}
        for source in (self._config, self._map):
            if source is not None:
                fields.update({name: (source, value) for name, value in source.values.items()})
        order = [name for name in NAMED_TOKENS if name in fields]
        return {name: fields[name] for name in dict.fromkeys([*order, *fields])}

    def _extra_sources(self) -> Iterator[tuple[JsonObject, str, object]]:
        """Fields that list special tokens: file, field, value that is not empty."""
        is_named = False
        for source in (self._config, self._map):
            for field in ("extra_special_tokens", "additional_special_tokens"):
                value = source.values.get(field) if source is not None else None
                if not value or source is None:
                    continue
                if not isinstance(value, (list, dict)):
                    source.refuse(field, "a list of tokens")
                if not is_named or field == "extra_special_tokens":
                    yield source, field, value
                is_named = True
                break  # the newer name is the one that counts


def _token(source: JsonObject, field: str, value: object) -> AddedToken | None:
    """Read a token where a file writes it as a string or as an object; None: it is no token."""
    if isinstance(value, str) and value:
        return AddedToken(value, special=True, normalized=False)
    if isinstance(value, dict) and "content" in value:
        token = read_added_token(JsonObject(source.path, value, source.name(field)))
        return replace(token, special=True)
    if field in NAMED_TOKENS and value:
        raise refusal(source.path, source.name(field), value, "a token")
    return None


def read_added_token(entry: JsonObject) -> AddedToken:
    """Read an added token as tokenizer.json and tokenizer_config.json write one."""
    content = entry.text("content")
    if not content:
        entry.refuse("content", "a token")
    special = entry.flag("special", default=False)
    return AddedToken(
        content=content,
        special=special,
        single_word=entry.flag("single_word", default=False),
        lstrip=entry.flag("lstrip", default=False),
        rstrip=entry.flag("rstrip", default=False),
        normalized=entry.flag("normalized", default=not special),
    )


def _model_vocabulary(tokenizer: JsonObject) -> tuple[dict[str, int], int]:
    """Return the ids of the tokens that the tokenizer's model knows, and their number."""
    model = tokenizer.part("model")
    if model is None:
        tokenizer.refuse("model", "an object")
    vocab = model.values.get("vocab")
    if isinstance(vocab, dict):
        for token, index in vocab.items():
            if not is_integer(index, 0, MAX_TOKEN_ID):
                raise refusal(
                    tokenizer.path, f"model.vocab[{token[:48]!r}]", index,
                    f"a token id from 0 to {MAX_TOKEN_ID}",
                )  # fmt: skip
        return dict(vocab), len(vocab)
    if not isinstance(vocab, list):
        model.refuse("vocab", "a vocabulary")
    ids: dict[str, int] = {}
    for index, entry in enumerate(vocab):  # Unigram: [token, score] at the place of its id
        if not (isinstance(entry, list) and entry and isinstance(entry[0], str)):
            raise refusal(tokenizer.path, f"model.vocab[{index}]", entry, "a token and its score")
        ids[entry[0]] = index
    return ids, len(vocab)
