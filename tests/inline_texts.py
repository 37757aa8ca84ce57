"""Tokenizes where it is called: for tests of what comes before and after."""

from __future__ import annotations

from minedraft.validation import prompt_too_long


class InlineTexts:
    """As `services.coordinator.text.pool.Texts`."""

    def __init__(self, tokenizer) -> None:
        self._tokenizer = tokenizer

    async def encode(self, text, *, parse_special_tokens, max_tokens):
        ids = self._tokenizer.encode(text, parse_special_tokens=parse_special_tokens)
        return self._fitting(ids, max_tokens)

    async def encode_chat(self, messages, *, max_tokens, max_chars):
        return self._fitting(
            self._tokenizer.prompts.encode_chat(messages, max_chars=max_chars), max_tokens
        )

    async def encode_bad_words(self, words):
        return tuple(ids for word in words for ids in self._tokenizer.encode_bad_word(word))

    def _fitting(self, ids, max_tokens):
        if len(ids) > max_tokens:
            raise prompt_too_long(len(ids), max_tokens)
        return tuple(ids)
