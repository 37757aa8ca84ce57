"""Tokenizes and detokenizes for callers, in the processes for text. Needs no verifier.

Refuses by size before anything is sent there. The event loop only looks tokens up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from minedraft.api import MAX_TOKENIZED, Delta, TokenizerInfo
from minedraft.errors import InvalidRequestError
from minedraft.types import MAX_VOCAB_SIZE
from minedraft.validation import check_count, validate_chat, validate_text

if TYPE_CHECKING:
    from minedraft.api import Event, TokenizeOrder
    from minedraft.services.coordinator.text.pool import Texts
    from minedraft.services.coordinator.text.tokenizer import Tokenizer
    from minedraft.types import TokenLogprobs

_MAX_TEXT_BYTES: Final = 4 * 2**20
"""Most text to tokenize: the largest message has no more."""
_MAX_ANSWER_BYTES: Final = 4_000_000
"""Most text of an answer, under what a message carries."""
_NO_TOKENIZER: Final = (
    "text: this service has no tokenizer: restart the coordinator with --tokenizer DIR"
)


class Tokenization:
    """See the module docstring.

    Args:
        tokenizer: The target's; None: everything is refused.
        texts: Tokenizes, if there is a tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer | None, texts: Texts | None) -> None:
        self._tokenizer = tokenizer
        self._texts = texts

    async def tokenize(self, order: TokenizeOrder) -> tuple[int, ...]:
        """Return the ids of a text or a chat; of an empty text those that are put around it.

        Raises:
            InvalidRequestError: too large, a chat that the template refuses, or no tokenizer.
            QueueFullError: too much waits to be tokenized.
            WorkerUnavailableError: no process to do it.
        """
        _, texts = self._need()
        if order.text is not None:
            if order.text:
                validate_text(order.text, max_bytes=_MAX_TEXT_BYTES)
            return await texts.encode(
                order.text,
                parse_special_tokens=order.parse_special_tokens,
                add_special_tokens=order.add_special_tokens,
                max_tokens=MAX_TOKENIZED,
                too_long=_too_long,
            )
        messages = [(message.role, message.content) for message in order.messages or ()]
        validate_chat(messages, max_bytes=_MAX_TEXT_BYTES)
        return await texts.encode_chat(
            messages,
            max_tokens=MAX_TOKENIZED,
            max_chars=_MAX_TEXT_BYTES,
            too_long=_too_long,
        )

    async def detokenize(self, token_ids: tuple[int, ...], *, skip_special_tokens: bool) -> str:
        """Return the text of ids.

        Raises:
            InvalidRequestError: too many, an id beyond every vocabulary, too much text, or no
                tokenizer.
            QueueFullError: too much waits to be tokenized.
            WorkerUnavailableError: no process to do it.
        """
        _, texts = self._need()
        check_count("token_ids", len(token_ids), MAX_TOKENIZED)
        if token_ids and max(token_ids) >= MAX_VOCAB_SIZE:
            raise InvalidRequestError(
                f"token_ids has {max(token_ids)}, want ids below {MAX_VOCAB_SIZE}",
                field="token_ids",
            )
        if not token_ids:
            return ""
        return await texts.decode(
            token_ids, skip_special_tokens=skip_special_tokens, max_bytes=_MAX_ANSWER_BYTES
        )

    def info(self) -> TokenizerInfo:
        """The tokenizer.

        Raises:
            InvalidRequestError: there is none.
        """
        tokenizer, _ = self._need()
        return TokenizerInfo(
            tokenizer.vocab_size, tokenizer.chat_template, dict(tokenizer.named_tokens)
        )

    def spelled(self, event: Event) -> Event:
        """Fill in the bytes of the tokens that an event has log-probabilities of."""
        tokenizer = self._tokenizer
        if tokenizer is None or not isinstance(event, Delta) or not event.logprobs:
            return event
        spell = tokenizer.token_bytes

        def fill(entry: TokenLogprobs) -> TokenLogprobs:
            return replace(
                entry,
                token_bytes=spell(entry.token_id),
                top_bytes=tuple(spell(token_id) for token_id, _ in entry.top),
            )

        return replace(event, logprobs=tuple(map(fill, event.logprobs)))

    def _need(self) -> tuple[Tokenizer, Texts]:
        if self._tokenizer is None or self._texts is None:
            raise InvalidRequestError(_NO_TOKENIZER, field="text")
        return self._tokenizer, self._texts


def _too_long(num_tokens: int, most: int) -> InvalidRequestError:
    return InvalidRequestError(f"text has {num_tokens} tokens, want at most {most}", field="text")
