"""Decides, token by token, where an output ends and which text is final.

Tokens arrive in accepted runs of any length; what comes out does not depend on how they were cut.
Refuses to let anything past the end out: ids, text and finish reason are cut together.
Pure: no I/O, no clock.

Order at every token: EOS, then stop_token_ids, then stop strings, then length. A stop counts only
with at least `min_tokens` output tokens before it, which is also when the verifier unmasks it.

As users of vLLM expect: the token that ends the output, EOS or a stop id, is part of the output's
ids and of its count, and has no text unless `include_stop_str_in_output` asks for it (then a
special token still has none under `skip_special_tokens`). Text may lag behind ids by an unfinished
character or a possible stop string; ids are never held back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.errors import StateError
from minedraft.services.coordinator.text.detokenizer import Detokenizer
from minedraft.services.coordinator.text.stop_strings import StopStrings
from minedraft.types import FinishReason

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from minedraft.services.coordinator.text.tokenizer import Tokenizer
    from minedraft.types import SamplingParams


@dataclass(frozen=True, slots=True)
class Finish:
    """Reason of the end of an output."""

    reason: FinishReason
    stop_token_id: int | None = None
    """The EOS or stop id that ended it, if one did."""
    stop_string: str | None = None
    """The stop string that ended it, if one did."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Result of a run of tokens."""

    num_kept: int
    """Tokens of the run that belong to the output; the rest came after its end."""
    text: str
    """Text that became final."""
    finish: Finish | None = None
    """Set once, with the last text."""


class OutputProcessor:
    """Turns one output from tokens into text, until exactly one `Finish`.

    Args:
        tokenizer: None for a service without text: then there are no deltas and, as validation
            made sure, no stop strings.
        prompt_token_ids: What the output continues. Never searched for stops.
        params: Of the request. `max_tokens` is not read, the resolved one comes beside it.
        stop_ids: The request's stop_token_ids.
        eos_ids: The model's; `params.ignore_eos` is heeded here.
        max_tokens: Most output tokens, >= 1.

    Raises:
        StateError: Stop strings without a tokenizer, or `max_tokens` under 1: validation failed.
    """

    def __init__(  # noqa: PLR0917 the order in which an output meets them
        self,
        tokenizer: Tokenizer | None,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        stop_ids: Collection[int],
        eos_ids: Collection[int],
        max_tokens: int,
    ) -> None:
        if max_tokens < 1:
            raise StateError(f"max_tokens is {max_tokens}, want at least 1")
        if tokenizer is None and params.stop:
            raise StateError(
                f"stop has {len(params.stop)} strings, and there is no tokenizer to find them with"
            )
        self._detokenizer = (
            Detokenizer(tokenizer, prompt_token_ids, skip_special_tokens=params.skip_special_tokens)
            if tokenizer is not None
            else None
        )
        self._include_stop = params.include_stop_str_in_output
        self._stops = StopStrings(params.stop, include_stop=self._include_stop)
        self._end_ids = frozenset(stop_ids) | (
            frozenset[int]() if params.ignore_eos else frozenset(eos_ids)
        )
        self._min_tokens = params.min_tokens
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._finish: Finish | None = None

    @property
    def num_tokens(self) -> int:
        """Output tokens so far."""
        return self._num_tokens

    @property
    def finish(self) -> Finish | None:
        """How the output ended; None while it continues."""
        return self._finish

    def push(self, token_ids: Sequence[int]) -> Progress:
        """Take the next committed tokens.

        Raises:
            StateError: The output has ended.
        """
        self._require_open("push")
        parts: list[str] = []
        for index, token_id in enumerate(token_ids):
            self._finish = self._step(token_id, parts)
            if self._finish is not None:
                return Progress(index + 1, "".join(parts), self._finish)
        return Progress(len(token_ids), "".join(parts))

    def abort(self) -> Progress:
        """End the output here, and release text held back as a possible stop string.

        An unfinished character is not: the rest of it will not come.

        Raises:
            StateError: The output has ended.
        """
        self._require_open("abort")
        self._finish = Finish(FinishReason.ABORT)
        return Progress(0, self._stops.release(), self._finish)

    def _step(self, token_id: int, parts: list[str]) -> Finish | None:
        """Take one token; append its text to `parts`."""
        may_stop = self._num_tokens >= self._min_tokens
        self._num_tokens += 1
        if may_stop and token_id in self._end_ids:
            tail = self._tail([token_id] if self._include_stop else [], may_stop=may_stop)
            parts.append(tail[0])
            return Finish(FinishReason.STOP, stop_token_id=token_id)
        if self._detokenizer is not None:
            scanned = self._stops.push(self._detokenizer.push((token_id,)), may_stop=may_stop)
            parts.append(scanned.text)
            if scanned.stop is not None:
                return Finish(FinishReason.STOP, stop_string=scanned.stop)
        if self._num_tokens < self._max_tokens:
            return None
        text, stop = self._tail([], may_stop=may_stop)
        parts.append(text)
        if stop is not None:  # only a stop string with U+FFFD in it can complete in the tail
            return Finish(FinishReason.STOP, stop_string=stop)
        return Finish(FinishReason.LENGTH)

    def _tail(self, token_ids: Sequence[int], *, may_stop: bool) -> tuple[str, str | None]:
        """Release all held text, up to a stop string if one completes in it."""
        if self._detokenizer is None:
            return "", None
        text = self._detokenizer.push(token_ids) + self._detokenizer.flush()
        scanned = self._stops.push(text, may_stop=may_stop)
        if scanned.stop is not None:
            return scanned.text, scanned.stop
        return scanned.text + self._stops.release(), None

    def _require_open(self, event: str) -> None:
        if self._finish is not None:
            raise StateError(f"{event} after the output ended with {self._finish.reason.name}")
