"""Writes a stream of server-sent events. Pure.

A plain chunk is the fixed bytes of its choice around the new text: no model, no dictionary per
event. Nothing else costs so little.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from minedraft.api import Delta, Finished
    from minedraft.services.gateway.refusal import Refusal
    from minedraft.services.gateway.reply import Reply

DONE: Final = b"data: [DONE]\n\n"
COMMENT: Final = b": waiting\n\n"
"""A line that clients skip and proxies count as life."""


class Chunks:
    """The chunks of one answer.

    Args:
        reply: What they have in common.
    """

    def __init__(self, reply: Reply) -> None:
        asked = reply.asked
        self._reply = reply
        self._is_chat = asked.is_chat
        self._is_plain = not (
            asked.continuous_usage or asked.return_token_ids or asked.logprobs is not None
        )
        """Whether a chunk is text alone."""
        self._head = f"data: {json.dumps(reply.common(is_chunk=True))[:-1]}, "
        self._tail = ', "usage": null}\n\n' if asked.include_usage else "}\n\n"
        opening, closing = ('"delta": {"content": ', "}") if asked.is_chat else ('"text": ', "")
        self._before = [
            f'{self._head}"choices": [{{"index": {choice}, {opening}'.encode()
            for choice in range(asked.num_choices)
        ]
        self._after = f'{closing}, "logprobs": null, "finish_reason": null}}]{self._tail}'.encode()
        self._has_role = [not asked.is_chat] * asked.num_choices

    def begin(self, choice: int) -> bytes:
        """Write the prompt of a choice, if it is to be echoed."""
        echo = self._reply.echo(choice)
        return self._chunk({"index": choice, "text": echo}) if echo else b""

    def delta(self, choice: int, delta: Delta) -> bytes:
        """Write one chunk; b"" if it would tell nothing."""
        if self._is_plain:
            if not delta.text:
                return b""
            if self._has_role[choice]:
                return self._before[choice] + json.dumps(delta.text).encode() + self._after
        entry = {"index": choice, **self._text(choice, delta.text)}
        entry["logprobs"] = self._reply.logprobs(choice, delta.logprobs)
        if self._reply.asked.return_token_ids:
            entry["token_ids"] = delta.token_ids
        return self._chunk(entry)

    def end(self, choice: int, finished: Finished) -> bytes:
        """Write the last chunk of a choice."""
        is_begun = self._is_chat and self._has_role[choice]
        text = {"delta": {}} if is_begun else self._text(choice, "")
        return self._chunk({"index": choice, **text, **self._reply.end(finished)})

    def usage(self) -> bytes:
        """Write the chunk of usage, after the last choice has ended."""
        totals = self._reply.totals
        whole = {"choices": [], "usage": totals.usage(), "metrics": totals.metrics()}
        return f"{self._head}{json.dumps(whole)[1:]}\n\n".encode()

    def _text(self, choice: int, text: str) -> dict[str, Any]:
        if not self._is_chat:
            return {"text": text}
        role = {} if self._has_role[choice] else {"role": "assistant"}
        self._has_role[choice] = True
        return {"delta": {**role, "content": text}}

    def _chunk(self, entry: dict[str, Any]) -> bytes:
        entry.setdefault("logprobs", None)
        entry.setdefault("finish_reason", None)
        whole: dict[str, Any] = {"choices": [entry]}
        if self._reply.asked.continuous_usage:
            whole["usage"] = self._reply.totals.usage()
            return f"{self._head}{json.dumps(whole)[1:]}\n\n".encode()
        return f"{self._head}{json.dumps(whole)[1:-1]}{self._tail}".encode()


def failure(refusal: Refusal) -> bytes:
    """Write the chunk that ends a stream that failed: clients raise at its root's `error`."""
    return b"data: " + refusal.encoded + b"\n\n"
