"""Input and output of acceptance for one row of a verify step. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.model.sampling import BROKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.model.sampling_row import SamplingRow
    from minedraft.types import TokenLogprobs


@dataclass(slots=True)
class AcceptItem:
    """One row of a verify step."""

    row: SamplingRow
    draft_token_ids: Sequence[int]
    q: Sequence[tuple[Sequence[int], Sequence[float]] | None] | None = None
    """For each draft the (ids, probabilities) it was drawn from; REJECTION only, untrusted."""


@dataclass(slots=True)
class Outcome:
    """What one row emits."""

    token_ids: list[int]
    """Accepted drafts, then one recovered or bonus token, or `BROKEN`."""
    num_accepted: int
    logprobs: list[TokenLogprobs] | None = None
    """One per token if the row asked for them."""

    @property
    def is_broken(self) -> bool:
        """Whether the target's logits after the accepted drafts are no distribution."""
        return self.token_ids[-1] == BROKEN

    def hold_off(self) -> None:
        """Emit the accepted drafts first: without drafts they would have come, and may end it.

        The last of them is then the token of this step, and the next step finds what is broken.
        """
        if self.is_broken and self.num_accepted:
            self.token_ids.pop()
            self.num_accepted -= 1


def num_usable(draft_token_ids: Sequence[int], vocab_size: int) -> int:
    """Number of leading drafts inside the vocabulary: no later one can be accepted."""
    for i, token in enumerate(draft_token_ids):
        if not 0 <= token < vocab_size:
            return i
    return len(draft_token_ids)
