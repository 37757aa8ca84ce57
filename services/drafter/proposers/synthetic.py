"""Benchmarks: does a model's work, and makes a given share of its tokens right.

The request's debug options have the target's own output and that share. Where they say nothing, it
proposes what the model drew.

What it imposes has scores as a drafter's are: they know something of whether the token is right,
and not all. They are drawn from an exponential law, one for right tokens and one for wrong ones.
So a right token has the higher margin of two with the probability `MARGIN_AUC`, the lower surprisal
with `SURPRISAL_AUC`: means of what the two demo pairs show at T = 0.8 (benchmarks/LOG.md). The coin
itself is in none of them. The log-odds of being right rise linearly with such a score: whoever fits
a logistic curve to it, one bias per share, has the true form. A real drafter is not so kind.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from minedraft.model.noise import Stream, uniform_at
from minedraft.plans import Score
from minedraft.services.drafter.proposers.model import Imposed, ModelProposer
from minedraft.types import MAX_MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.services.drafter.proposer import DraftContext, Drafting

MARGIN_AUC: Final = 0.83
SURPRISAL_AUC: Final = 0.8
_RIGHT_MARGIN: Final = 2.0  # means
_RIGHT_SURPRISAL: Final = 0.4


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

    def impose(self, item: Drafting, drawn: int) -> Imposed | None:  # noqa: ARG002 whatever it is
        """See `ModelProposer`."""
        share = item.row.debug.synthetic_acceptance
        reference = item.row.reference(len(item.drafts), 1)
        vocab_size = self._runner.info.vocab_size
        if share is None or not reference or reference[0] >= vocab_size:
            return None
        sampling = item.row.sampling
        position = sampling.num_tokens + len(item.drafts)
        is_right = self._coin(sampling.params.seed, position) < share
        token = reference[0] if is_right else (reference[0] + 1) % vocab_size
        if item.score is Score.NONE:
            return Imposed(token)
        uniform = uniform_at(sampling.params.seed, position, Stream.SYNTHETIC_SCORE)
        return Imposed(token, score_of(uniform, item.score, is_right=is_right))


def score_of(uniform: float, score: Score, *, is_right: bool) -> float:
    """Score of an imposed token; see the module docstring.

    Args:
        uniform: In (0, 1).
        score: Not NONE.
        is_right: Whether the token is the reference's.
    """
    # Of two exponentials the one with mean a is the larger with the probability a / (a + b).
    if score is Score.MARGIN:
        wrong = _RIGHT_MARGIN * (1 - MARGIN_AUC) / MARGIN_AUC
        return min(-math.log(uniform) * (_RIGHT_MARGIN if is_right else wrong), MAX_MARGIN)
    wrong = _RIGHT_SURPRISAL * SURPRISAL_AUC / (1 - SURPRISAL_AUC)
    return -math.log(uniform) * (_RIGHT_SURPRISAL if is_right else wrong)
