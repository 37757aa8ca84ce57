"""Benchmarks: does a model's work, and makes a given share of its tokens right.

The request's debug options have the target's own output and that share. Where they say nothing, it
proposes what the model drew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.model.noise import Stream, uniform_at
from minedraft.services.drafter.proposers.model import ModelProposer

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.services.drafter.proposer import DraftContext, Drafting


def toss(seed: int, position: int) -> float:
    """Uniform in [0, 1), the same for every try of that position."""
    return uniform_at(seed, position, Stream.SYNTHETIC)


class SyntheticProposer(ModelProposer):
    """See the module docstring.

    Args:
        context: See `ModelProposer`.
        coin: (seed, position) -> uniform in [0, 1); below the share: right.
    """

    def __init__(self, context: DraftContext, coin: Callable[[int, int], float] = toss) -> None:
        super().__init__(context)
        self._coin = coin

    def impose(self, item: Drafting, drawn: int) -> int | None:  # noqa: ARG002 whatever was drawn
        """See `ModelProposer`."""
        share = item.row.debug.synthetic_acceptance
        reference = item.row.reference(len(item.drafts), 1)
        vocab_size = self._runner.info.vocab_size
        if share is None or not reference or reference[0] >= vocab_size:
            return None
        sampling = item.row.sampling
        position = sampling.num_tokens + len(item.drafts)
        is_right = self._coin(sampling.params.seed, position) < share
        return reference[0] if is_right else (reference[0] + 1) % vocab_size
