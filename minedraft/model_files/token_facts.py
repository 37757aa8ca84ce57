"""Derives the tokens of a model directory, for coordinator, workers and fingerprint.

Six files say something: tokenizer.json, tokenizer_config.json, special_tokens_map.json,
added_tokens.json, generation_config.json and config.json. They are read here and nowhere else, and
what they say is what transformers' `AutoTokenizer` gives. Loads no tokenizers library and no torch,
so that every process can afford it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minedraft.model_files.added_tokens import (
    MAX_TOKEN_ID,
    TOKENIZER_FILE,
    AddedToken,
    Sources,
    Vocabulary,
    merge,
)
from minedraft.model_files.json_file import (
    MAX_TOKENIZER_BYTES,
    JsonObject,
    is_integer,
    read_object,
    refusal,
)
from minedraft.model_files.text_pipeline import replaced_parts
from minedraft.types import MAX_EOS_IDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """The tokens of a model directory."""

    fingerprint: str
    """SHA-256 in hex over all (id, token) pairs, added tokens included, and the ids of special
    tokens; empty without a tokenizer.json."""
    num_ids: int
    """Largest id + 1, added tokens included; 0 without a tokenizer.json."""
    eos_token_ids: tuple[int, ...]
    """Ids that end a sequence, of all files that name some; empty if none does."""
    extra_tokens: tuple[AddedToken, ...] = ()
    """What to add to tokenizer.json so that it says what all files say."""
    added_ids: Mapping[str, int] | None = None
    """Content to id of the added tokens."""
    named_tokens: Mapping[str, str] | None = None
    """`bos_token` and its like: name to content, for the chat template."""
    decoder: Mapping[str, Any] | None = None
    """How tokens become text, as tokenizer.json describes it."""
    replaced_parts: Mapping[str, Any] | None = None
    """Parts of tokenizer.json that other files decide: `normalizer`, `pre_tokenizer`, `decoder`."""


def read_token_facts(model_dir: str | Path) -> TokenFacts:
    """Read the tokens from all files of a directory. Takes about 0.2 s per 100,000 tokens.

    Args:
        model_dir: A model directory; with a tokenizer.json or without one.

    Raises:
        ModelError: A file cannot be used, or the files contradict one another; names file, field,
            what was found and what is wanted.
    """
    directory = Path(model_dir)
    config = read_object(directory / "config.json")
    generation = read_object(directory / "generation_config.json")
    tokenizer = read_object(directory / TOKENIZER_FILE, MAX_TOKENIZER_BYTES)
    if tokenizer is None:
        return TokenFacts("", 0, _eos_token_ids(generation, config, None))
    settings = read_object(directory / "tokenizer_config.json")
    vocabulary = merge(
        Sources(
            tokenizer=tokenizer,
            config=settings,
            special_tokens_map=read_object(directory / "special_tokens_map.json"),
            added_tokens=read_object(directory / "added_tokens.json"),
        )
    )
    decoder = tokenizer.part("decoder")
    replaced = replaced_parts(tokenizer, settings, config)
    return TokenFacts(
        fingerprint=_fingerprint(vocabulary),
        num_ids=max(vocabulary.ids.values(), default=-1) + 1,
        eos_token_ids=_eos_token_ids(generation, config, vocabulary),
        extra_tokens=vocabulary.extra,
        added_ids={token.content: index for index, token in vocabulary.added.items()},
        named_tokens=vocabulary.named,
        decoder=replaced.get("decoder", None if decoder is None else decoder.values),
        replaced_parts=replaced,
    )


def _fingerprint(vocabulary: Vocabulary) -> str:
    # By id first: files list them in that order, which makes the sort linear. Then one canonical
    # JSON text: no separator that a token could contain, and one call in C.
    pairs = sorted((index, token) for token, index in vocabulary.ids.items())
    special = sorted(index for index, token in vocabulary.added.items() if token.special)
    canonical = json.dumps([pairs, special], separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def _eos_token_ids(
    generation: JsonObject | None, config: JsonObject | None, vocabulary: Vocabulary | None
) -> tuple[int, ...]:
    """Collect what ends a sequence: any file that names an id is right, so the union is."""
    text_config = config.part("text_config") if config is not None else None
    num_rows = None if config is None else _num_rows(config, text_config)
    known = None if vocabulary is None else set(vocabulary.ids.values())
    found: dict[int, None] = {}
    for source, index in _declared_eos(generation, config, text_config):
        if known is not None and index not in known:
            raise refusal(source.path, source.name("eos_token_id"), index,
                          f"an id of a token of {TOKENIZER_FILE}")  # fmt: skip
        if num_rows is not None and index >= num_rows:
            raise refusal(source.path, source.name("eos_token_id"), index,
                          f"an id below the vocab_size of config.json, {num_rows}")  # fmt: skip
        found[index] = None
        if len(found) > MAX_EOS_IDS:
            source.refuse("eos_token_id", f"at most {MAX_EOS_IDS} token ids over all files")
    if vocabulary is not None and "eos_token" in vocabulary.named:
        found[vocabulary.ids[vocabulary.named["eos_token"]]] = None
    return tuple(found)


def _num_rows(config: JsonObject, text_config: JsonObject | None) -> int | None:
    for source in (text_config, config):
        size = None if source is None else source.integer("vocab_size", 1, MAX_TOKEN_ID + 1)
        if size is not None:
            return size
    return None


def _declared_eos(*sources: JsonObject | None) -> Iterator[tuple[JsonObject, int]]:
    for source in sources:
        if source is None:
            continue
        value = source.values.get("eos_token_id")
        ids = value if isinstance(value, list) else [value] if value is not None else []
        if len(ids) > MAX_EOS_IDS:
            source.refuse("eos_token_id", f"at most {MAX_EOS_IDS} token ids")
        for index in ids:
            if not is_integer(index, 0, MAX_TOKEN_ID):
                raise refusal(source.path, source.name("eos_token_id"), index, "a token id")
            yield source, index
