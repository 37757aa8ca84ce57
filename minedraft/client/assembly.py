"""Assembles the events of a stream into a completion. Pure; checks the peer's order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minedraft.api import Choice, Completion, Delta, Event, Finished, Started
from minedraft.errors import ProtocolError

if TYPE_CHECKING:
    from minedraft.types import TokenLogprobs


@dataclass(slots=True)
class _Sample:
    token_ids: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finished: Finished | None = None


class Assembly:
    """Collects the output of one request.

    Args:
        num_samples: Samples the request asked for.
    """

    def __init__(self, num_samples: int = 1) -> None:
        self.started: Started | None = None
        self._samples = [_Sample() for _ in range(num_samples)]

    @property
    def is_finished(self) -> bool:
        """Whether every sample has ended."""
        return all(sample.finished is not None for sample in self._samples)

    def push(self, event: Event) -> None:
        """Add the next event.

        Raises:
            ProtocolError: an event that cannot come now.
        """
        if isinstance(event, Started):
            if self.started is not None:
                raise ProtocolError("generate: a second Started event")
            self.started = event
            return
        if self.started is None:
            raise ProtocolError(f"generate: {type(event).__name__} before Started")
        if event.index >= len(self._samples):
            raise ProtocolError(
                f"generate: sample {event.index}, but only {len(self._samples)} were asked for"
            )
        sample = self._samples[event.index]
        if sample.finished is not None:
            raise ProtocolError(f"generate: sample {event.index} continues after its end")
        if isinstance(event, Delta):
            sample.token_ids.extend(event.token_ids)
            sample.text.append(event.text)
            sample.logprobs.extend(event.logprobs)
        else:
            sample.finished = event

    def completion(self) -> Completion:
        """Build the completion.

        Raises:
            ProtocolError: the stream ended before every sample did.
        """
        if self.started is None:
            raise ProtocolError("generate: the stream ended without an event")
        return Completion(
            request_id=self.started.request_id,
            seed=self.started.seed,
            num_prompt_tokens=self.started.num_prompt_tokens,
            choices=tuple(_choice(i, sample) for i, sample in enumerate(self._samples)),
        )


def _choice(index: int, sample: _Sample) -> Choice:
    finished = sample.finished
    if finished is None:
        raise ProtocolError(f"generate: the stream ended before sample {index} did")
    return Choice(
        index=index,
        text="".join(sample.text),
        token_ids=tuple(sample.token_ids),
        logprobs=tuple(sample.logprobs),
        finish_reason=finished.reason,
        stop_token_id=finished.stop_token_id,
        stop_string=finished.stop_string,
        usage=finished.usage,
        speculation=finished.speculation,
        timing=finished.timing,
    )
