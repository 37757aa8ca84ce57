"""History and parameters of one open row, and positions in it. Draws nothing."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from minedraft.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.types import RowParams


class SamplingRow:
    """One row for sampling; drafter and verifier keep equal copies.

    The lists are for reading; only `set_committed` changes them.
    """

    def __init__(
        self,
        params: RowParams,
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int] = (),
    ) -> None:
        self.params = params
        self.prompt_token_ids = list(prompt_token_ids)
        self.output_token_ids = list(output_token_ids)
        self.has_penalties = (
            params.repetition_penalty != 1.0
            or params.presence_penalty != 0.0
            or params.frequency_penalty != 0.0
        )
        self.has_processors = (
            self.has_penalties
            or bool(params.logit_bias)
            or (params.min_tokens > 0 and bool(params.stop_ids))
            or bool(params.bad_words)
            or bool(params.allowed_token_ids)
        )
        self.draw_params = (
            params.seed - (1 << 64) if params.seed >> 63 else params.seed,  # as torch wants it
            0.0 if params.is_greedy else params.temperature,
            params.top_k,
            params.top_p,
            math.log(params.min_p) if params.min_p > 0 else -math.inf,
        )
        """One line of `DrawRows`, without places and positions."""
        self._counts = Counter(self.output_token_ids)
        self._history: tuple[Tensor, Tensor] | None = None

    @property
    def num_tokens(self) -> int:
        """Committed tokens, prompt and output together."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    def set_committed(self, base_len: int, new_token_ids: Sequence[int]) -> None:
        """Set the committed length to base_len, where the last tokens are new_token_ids.

        Repeats are fine and cost nothing: the row is cut to base_len - len(new_token_ids) first.

        Args:
            base_len: Committed length afterwards, prompt and output together.
            new_token_ids: The tokens that end there; they may reach back into the prompt, where
                they must repeat it.

        Raises:
            ProtocolError: There would be a hole, or the prompt would be cut or changed.
        """
        num_prompt = len(self.prompt_token_ids)
        first = base_len - len(new_token_ids)
        if base_len < num_prompt or first < 0:
            raise ProtocolError(
                f"base_len {base_len} with {len(new_token_ids)} new tokens does not fit a prompt"
                f" of {num_prompt} tokens"
            )
        if first > self.num_tokens:
            raise ProtocolError(
                f"base_len {base_len} with {len(new_token_ids)} new tokens leaves a hole after"
                f" the {self.num_tokens} tokens known"
            )
        in_prompt = max(0, num_prompt - first)
        if list(new_token_ids[:in_prompt]) != self.prompt_token_ids[first : first + in_prompt]:
            raise ProtocolError(
                f"base_len {base_len} with {len(new_token_ids)} new tokens changes the prompt"
            )
        start = max(0, first - num_prompt)
        tail = list(new_token_ids[in_prompt:])
        old = self.output_token_ids[start:]
        if old == tail:
            return
        self.output_token_ids[start:] = tail
        self._counts.subtract(old)
        self._counts.update(tail)
        self._history = None

    def output_count(self, token_id: int) -> int:
        """Times a token occurs in the committed output."""
        return self._counts[token_id]

    def penalised(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Distinct tokens that penalties touch, and how often each is in the committed output.

        Returns:
            [U] int64 ids and [U] float32 counts. Tokens of the prompt are among them (with a count
            of output occurrences, often 0) only if there is a repetition penalty.
        """
        if self._history is None or self._history[0].device != device:
            counts = {token: count for token, count in self._counts.items() if count > 0}
            if self.params.repetition_penalty != 1.0:
                counts = dict.fromkeys(self.prompt_token_ids, 0) | counts
            self._history = (
                torch.tensor(list(counts.keys()), dtype=torch.int64, device=device),
                torch.tensor(list(counts.values()), dtype=torch.float32, device=device),
            )
        return self._history


@dataclass(slots=True)
class Position:
    """A position for a token: after the row's committed tokens and a draft prefix."""

    row: SamplingRow
    draft_prefix: Sequence[int] = ()
    """Draft tokens before this position, as part of the history."""

    @property
    def index(self) -> int:
        """Absolute position of the token to draw."""
        return self.row.num_tokens + len(self.draft_prefix)
