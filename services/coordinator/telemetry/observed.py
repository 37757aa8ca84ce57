"""Sums of what the engine saw of requests and steps; they only grow. Pure: times come in, in ns."""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Final, Self

from minedraft.services.coordinator.telemetry.histogram import (
    LAG_S,
    REQUEST_S,
    ROWS,
    TOKEN_S,
    TOKENS,
    TTFT_S,
    Histogram,
)

if TYPE_CHECKING:
    from minedraft.api import Finished
    from minedraft.plans import DraftResult, StepTiming, VerifyResult

NS: Final = 1e-9
_MAX_SPANS: Final = 16
"""Recent spans of a device that those of the other one may overlap."""


class Observed:
    """See the module docstring. Trial steps and steps that warm a drafter up are not told to it."""

    def __init__(self) -> None:
        self.queue_s = Histogram(REQUEST_S)
        """Arrival to admission."""
        self.ttft_s = Histogram(TTFT_S)
        """Arrival to the first token."""
        self.gap_s = Histogram(TOKEN_S)
        """From one delivery of a request to its next; each has 1 to k + 1 tokens."""
        self.prefill_s = Histogram(REQUEST_S)
        """Admission to the first token."""
        self.decode_s = Histogram(REQUEST_S)
        """First token to the end."""
        self.inference_s = Histogram(REQUEST_S)
        """Admission to the end."""
        self.e2e_s = Histogram(REQUEST_S)
        """Arrival to the end."""
        self.token_s = Histogram(TOKEN_S)
        """Time per output token after the first, one value per request."""
        self.prompt_tokens = Histogram(TOKENS)
        self.output_tokens = Histogram(TOKENS)
        self.max_tokens = Histogram(TOKENS)
        self.verify_rows = Histogram(ROWS)
        self.draft_rows = Histogram(ROWS)
        self.loop_lag_s = Histogram(LAG_S)
        self.num_prompt_tokens = 0
        """Of prompts whose first token has come."""
        self.num_cached_tokens = 0
        """Of them, those whose KV came from the prefix cache."""
        self.draft_ns = 0
        self.verify_ns = 0
        self.wait_ns = 0
        """The verifier waited for drafts."""
        self.idle_ns = 0
        """The verifier's device had nothing to do since its last step."""
        self.bubble_ns = 0
        """Of it: plan and drafts were both there."""
        self.overlap_ns = 0
        """Both devices computed, by the workers' clocks."""
        self._drafting: deque[tuple[int, int]] = deque(maxlen=_MAX_SPANS)
        self._verifying: deque[tuple[int, int]] = deque(maxlen=_MAX_SPANS)

    def first_token(self, ttft_ns: int, num_prompt_tokens: int, num_cached_tokens: int) -> None:
        """A prompt is computed."""
        self.ttft_s.observe(ttft_ns * NS)
        self.num_prompt_tokens += num_prompt_tokens
        self.num_cached_tokens += num_cached_tokens

    def next_tokens(self, gap_ns: int) -> None:
        """A request got tokens, so long after the ones before."""
        self.gap_s.observe(gap_ns * NS)

    def finished(self, finished: Finished, max_tokens: int) -> None:
        """A sample ended. What it never reached has no time."""
        usage, timing = finished.usage, finished.timing
        self.prompt_tokens.observe(usage.num_prompt_tokens)
        self.output_tokens.observe(usage.num_output_tokens)
        self.max_tokens.observe(max_tokens)
        self.e2e_s.observe(timing.e2e_ns * NS)
        if not timing.ttft_ns:
            return
        self.queue_s.observe(timing.queue_ns * NS)
        self.prefill_s.observe((timing.ttft_ns - timing.queue_ns) * NS)
        self.inference_s.observe((timing.e2e_ns - timing.queue_ns) * NS)
        decode_s = (timing.e2e_ns - timing.ttft_ns) * NS
        self.decode_s.observe(decode_s)
        if usage.num_output_tokens > 1:
            self.token_s.observe(decode_s / (usage.num_output_tokens - 1))

    def drafted(self, result: DraftResult) -> None:
        """A draft step is done."""
        self.draft_rows.observe(result.num_rows)
        self.draft_ns += result.timing.total_ns
        self._overlap(result.timing, self._drafting, self._verifying)

    def verified(self, result: VerifyResult) -> None:
        """A verify step is done."""
        timing = result.timing
        self.verify_rows.observe(len(result.rows))
        self.verify_ns += timing.total_ns
        self.wait_ns += timing.wait_ns
        self.idle_ns += timing.idle_ns
        self.bubble_ns += timing.bubble_ns
        self._overlap(timing, self._verifying, self._drafting)

    def copy(self) -> Self:
        """Return one that does not change."""
        same = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Histogram):
                setattr(same, name, value.copy())
        return same

    def _overlap(
        self,
        timing: StepTiming,
        own: deque[tuple[int, int]],
        others: deque[tuple[int, int]],
    ) -> None:
        """Add what a span has in common with those of the other device that were told before."""
        start, end = timing.started_unix_ns, timing.started_unix_ns + timing.total_ns
        own.append((start, end))
        self.overlap_ns += sum(
            max(min(end, their_end) - max(start, their_start), 0)
            for their_start, their_end in others
        )
