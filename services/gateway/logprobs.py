"""Log-probabilities in the two shapes of this API. Pure.

The likeliest tokens always hold the emitted one, with the identical float: lm-eval compares them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.types import TokenLogprobs

LOWEST: Final = -9999.0
"""What minus infinity is in JSON, as in vLLM."""


def finite(logprob: float) -> float:
    """Return a log-probability that JSON can say."""
    return logprob if math.isfinite(logprob) else LOWEST


class Tokens:
    """Names tokens for clients.

    Args:
        as_ids: Whether as `token_id:N`.
    """

    def __init__(self, *, as_ids: bool) -> None:
        self._as_ids = as_ids

    def name(self, token_id: int, token_bytes: bytes) -> str:
        """Return the text of a token; bytes that are no text have replacement characters."""
        if self._as_ids or not token_bytes:  # no text: a client would take it for nothing
            return f"token_id:{token_id}"
        return token_bytes.decode("utf-8", "replace")


class CompletionLogprobs:
    """The parallel lists of `/v1/completions`, of one choice; offsets go on from delta to delta.

    Args:
        tokens: Names them.
        offset: Characters before the first token.
    """

    def __init__(self, tokens: Tokens, offset: int = 0) -> None:
        self._tokens = tokens
        self._offset = offset

    def of(self, entries: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """Return the lists of some tokens in a row."""
        lists: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for entry in entries:
            name = self._tokens.name(entry.token_id, entry.token_bytes)
            logprob = finite(entry.logprob)
            top = {
                self._tokens.name(token_id, _top_bytes(entry, place)): finite(value)
                for place, (token_id, value) in enumerate(entry.top)
            }
            top.pop(name, None)  # of two tokens that look alike the emitted one is told
            top[name] = logprob
            lists["tokens"].append(name)
            lists["token_logprobs"].append(logprob)
            lists["top_logprobs"].append(top)
            lists["text_offset"].append(self._offset)
            self._offset += len(name)
        return lists


def chat_logprobs(tokens: Tokens, entries: Sequence[TokenLogprobs]) -> dict[str, Any]:
    """Return the log-probabilities of `/v1/chat/completions` of some tokens in a row."""
    return {"content": [_chat_entry(tokens, entry) for entry in entries]}


def _chat_entry(tokens: Tokens, entry: TokenLogprobs) -> dict[str, Any]:
    own = _chat_token(tokens, entry.token_id, entry.logprob, entry.token_bytes)
    top = [
        _chat_token(tokens, token_id, logprob, _top_bytes(entry, place))
        for place, (token_id, logprob) in enumerate(entry.top)
    ]
    if entry.top and all(token_id != entry.token_id for token_id, _ in entry.top):
        top.append(dict(own))
    return {**own, "top_logprobs": top}


def _chat_token(
    tokens: Tokens, token_id: int, logprob: float, token_bytes: bytes
) -> dict[str, Any]:
    return {
        "token": tokens.name(token_id, token_bytes),
        "logprob": finite(logprob),
        "bytes": list(token_bytes) or None,
    }


def _top_bytes(entry: TokenLogprobs, place: int) -> bytes:
    return entry.top_bytes[place] if place < len(entry.top_bytes) else b""
