"""Collects an answer and writes it as one body. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minedraft.api import Delta, Finished
    from minedraft.services.gateway.reply import Reply
    from minedraft.types import TokenLogprobs


@dataclass(slots=True)
class _Choice:
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)


class Whole:
    """One answer.

    Args:
        reply: What its parts have in common.
    """

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._choices = [_Choice() for _ in range(reply.asked.num_choices)]

    def begin(self, _choice: int) -> bytes:
        """Return b"": nothing is sent before the end."""
        return b""

    def delta(self, choice: int, delta: Delta) -> bytes:
        """Take a delta; return b""."""
        found = self._choices[choice]
        found.text.append(delta.text)
        found.token_ids.extend(delta.token_ids)
        found.logprobs.extend(delta.logprobs)
        return b""

    def end(self, choice: int, finished: Finished) -> bytes:
        """Take the end of a choice; return b""."""
        self._choices[choice].end = self._reply.end(finished)
        return b""

    def encoded(self) -> bytes:
        """Write the body, after every choice has ended."""
        whole = {
            **self._reply.common(is_chunk=False),
            "choices": [self._entry(index, found) for index, found in enumerate(self._choices)],
            "usage": self._reply.totals.usage(),
            "metrics": self._reply.totals.metrics(),
        }
        return json.dumps(whole).encode()

    def _entry(self, index: int, found: _Choice) -> dict[str, Any]:
        text = self._reply.echo(index) + "".join(found.text)
        entry: dict[str, Any] = {"index": index}
        if self._reply.asked.is_chat:
            entry["message"] = {"role": "assistant", "content": text}
        else:
            entry["text"] = text
        entry["logprobs"] = self._reply.logprobs(index, found.logprobs)
        if self._reply.asked.return_token_ids:
            entry["token_ids"] = found.token_ids
        return {**entry, **found.end}
