"""What every part of an answer has in common, a chunk and a whole body. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from minedraft.services.gateway.logprobs import CompletionLogprobs, Tokens, chat_logprobs
from minedraft.types import FinishReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.api import Finished
    from minedraft.services.gateway.asked import Asked
    from minedraft.services.gateway.totals import Totals
    from minedraft.types import TokenLogprobs

_REASONS: Final = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.ABORT: "abort",
}


@dataclass(frozen=True, slots=True)
class Heading:
    """What every part of an answer begins with."""

    model: str
    """Name that the client knows it by."""
    created: int
    """Unix seconds."""
    fingerprint: str
    num_draft_tokens: int
    """k of the service."""
    request_id: str = ""
    """The coordinator's; known once the request has started, as is the seed."""
    seed: int = 0


class Reply:
    """The answer to one request.

    Args:
        asked: What was asked.
        heading: Of this answer.
        totals: Counts, which the caller keeps.
        echoes: Per prompt, what goes before the output; none without `echo`.
    """

    def __init__(
        self, asked: Asked, heading: Heading, totals: Totals, echoes: tuple[str, ...] = ()
    ) -> None:
        self.asked: Final = asked
        self.totals: Final = totals
        self._heading = heading
        self._echoes = echoes
        self._tokens = Tokens(as_ids=asked.tokens_as_ids)
        self._lists = [
            CompletionLogprobs(self._tokens, len(self.echo(choice)))
            for choice in range(asked.num_choices)
        ]

    def common(self, *, is_chunk: bool) -> dict[str, Any]:
        """Return the fields at the root of a chunk or a body."""
        is_chat = self.asked.is_chat
        kind = "chat.completion" if is_chat else "text_completion"
        return {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{self._heading.request_id}",
            "object": f"{kind}.chunk" if is_chat and is_chunk else kind,
            "created": self._heading.created,
            "model": self._heading.model,
            "system_fingerprint": self._heading.fingerprint,
            "seed": self._heading.seed,
        }

    def echo(self, choice: int) -> str:
        """Return what goes before the output of a choice."""
        return self._echoes[choice // self.asked.n] if self._echoes else ""

    def logprobs(self, choice: int, entries: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        """Return the log-probabilities of the next tokens of a choice; None: not asked for."""
        if self.asked.logprobs is None:
            return None
        if self.asked.is_chat:
            return chat_logprobs(self._tokens, entries)
        return self._lists[choice].of(entries)

    def end(self, finished: Finished) -> dict[str, Any]:
        """Return why a choice ended. A stop id is told if the client named it, as in vLLM."""
        stop: int | str | None = finished.stop_string
        if stop is None and finished.stop_token_id in self.asked.options.get("stop_token_ids", ()):
            stop = finished.stop_token_id
        return {"finish_reason": _REASONS[finished.reason], "stop_reason": stop}
