"""Tokenizes where it is called: for tests of what comes before and after."""

from __future__ import annotations

from minedraft.errors import InvalidRequestError
from minedraft.validation import prompt_too_long


class InlineTexts:
    """As `services.coordinator.text.pool.Texts`."""

    def __init__(self, tokenizer) -> None:
        self._tokenizer = tokenizer

    async def encode(
        self,
        text,
        *,
        parse_special_tokens,
        max_tokens,
        add_special_tokens=True,
        too_long=prompt_too_long,
    ):
        ids = self._tokenizer.prompts.encode(
            text, parse_special_tokens=parse_special_tokens, add_special_tokens=add_special_tokens
        )
        return self._fitting(ids, max_tokens, too_long)

    async def encode_chat(self, messages, *, max_tokens, max_chars, too_long=prompt_too_long):
        ids = self._tokenizer.prompts.encode_chat(messages, max_chars=max_chars)
        return self._fitting(ids, max_tokens, too_long)

    async def encode_bad_words(self, words):
        return tuple(ids for word in words for ids in self._tokenizer.encode_bad_word(word))

    async def decode(self, token_ids, *, skip_special_tokens, max_bytes):
        text = self._tokenizer.prompts.decode(token_ids, skip_special_tokens=skip_special_tokens)
        if len(text.encode()) > max_bytes:
            raise InvalidRequestError("token_ids: too much text", field="token_ids")
        return text

    def _fitting(self, ids, max_tokens, too_long):
        if len(ids) > max_tokens:
            raise too_long(len(ids), max_tokens)
        return tuple(ids)
