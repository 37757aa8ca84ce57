"""What a request used and what speculation did for it, as clients of this API read it. Pure.

`usage` counts the prompt once, however many samples it has. `metrics` has the keys that aiperf
and `vllm bench serve` look for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from minedraft.api import SpeculationStats

if TYPE_CHECKING:
    from minedraft.api import Delta, Finished

_MS: Final = 1e6


class Totals:
    """Counts of one request.

    Args:
        num_prompts: Prompts.
        n: Samples per prompt.
        num_draft_tokens: k of the service; a request may ask for another.
    """

    def __init__(self, num_prompts: int, n: int, num_draft_tokens: int) -> None:
        self._n = n
        self._k = num_draft_tokens
        self._num_prompt_tokens = [0] * num_prompts
        self._num_output_tokens = [0] * (num_prompts * n)
        self._finished: dict[int, Finished] = {}

    @property
    def is_finished(self) -> bool:
        """Whether every choice has ended."""
        return len(self._finished) == len(self._num_output_tokens)

    def start(self, prompt: int, num_prompt_tokens: int) -> None:
        """Note the length of a prompt."""
        self._num_prompt_tokens[prompt] = num_prompt_tokens

    def add(self, choice: int, delta: Delta) -> None:
        """Note the tokens of a delta."""
        self._num_output_tokens[choice] += len(delta.token_ids)

    def finish(self, choice: int, finished: Finished) -> None:
        """Note the end of a choice."""
        self._finished[choice] = finished

    def usage(self) -> dict[str, Any]:
        """Return the usage so far; details once every choice has ended."""
        num_prompt, num_output = sum(self._num_prompt_tokens), sum(self._num_output_tokens)
        usage: dict[str, Any] = {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_output,
            "total_tokens": num_prompt + num_output,
        }
        if self.is_finished:
            stats = self._speculation()
            usage["prompt_tokens_details"] = {"cached_tokens": self._num_cached_tokens()}
            usage["completion_tokens_details"] = {
                "reasoning_tokens": 0,
                "accepted_prediction_tokens": min(stats.num_accepted_tokens, num_output),
                "rejected_prediction_tokens": stats.num_draft_tokens - stats.num_accepted_tokens,
            }
        return usage

    def metrics(self) -> dict[str, Any]:
        """Return times and what speculation did, after every choice has ended."""
        first = self._finished[0].timing
        return {
            "queue_time_ms": first.queue_ns / _MS,
            "time_to_first_token_ms": first.ttft_ns / _MS,
            "speculative_decoding": self._speculative_decoding(),
        }

    def _speculative_decoding(self) -> dict[str, Any]:
        stats = self._speculation()
        k = max(self._k, len(stats.acceptance_histogram) - 1, 0)
        histogram = list(stats.acceptance_histogram)
        histogram += [0] * (k + 1 - len(histogram))
        return {
            "num_spec_tokens": k,
            "num_spec_steps": stats.num_drafts,
            "num_draft_tokens": stats.num_draft_tokens,
            "num_accepted_draft_tokens": stats.num_accepted_tokens,
            "draft_acceptance_rate": stats.acceptance_rate,
            "mean_acceptance_length": stats.mean_acceptance_length,
            "acceptance_histogram": histogram,
        }

    def _speculation(self) -> SpeculationStats:
        return sum((end.speculation for end in self._finished.values()), SpeculationStats())

    def _num_cached_tokens(self) -> int:
        """Count cached prompt tokens: of samples of one prompt those that none computed."""
        return sum(
            min(
                self._finished[prompt * self._n + sample].usage.num_cached_tokens
                for sample in range(self._n)
            )
            for prompt in range(len(self._num_prompt_tokens))
        )
