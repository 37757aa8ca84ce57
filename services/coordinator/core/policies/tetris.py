"""The policy `tetris`: sequences draft some tokens more, the likeliest are verified. Pure.

A draft is as likely as the product of the probabilities that it and those before it were drawn
with, as TETRIS has it. The capacity follows the batch as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.plans import Score
from minedraft.services.coordinator.core.decision import Decision

if TYPE_CHECKING:
    from minedraft.policy_options import PolicyOptions
    from minedraft.services.coordinator.core.step_view import StepView


class Tetris:
    """See the module docstring.

    Args:
        options: Its capacity and extra proposals.
    """

    def __init__(self, options: PolicyOptions) -> None:
        self.note = ""
        self._capacity = options.tetris_capacity
        self._extra = options.tetris_extra_proposals

    def choose(self, view: StepView) -> Decision:
        """Draft k and some more; verify k per row that drafts, or the capacity."""
        most, k = view.most_draft_tokens, view.limits.num_draft_tokens - self._extra
        self.note = view.why_no_scores
        if self.note:
            return Decision.drafting(view, [max(k, 1)] * len(most))
        decision = Decision.drafting(view, None)
        if any(most):
            decision.score = Score.SURPRISAL
            decision.budget = self._capacity or sum(min(each, max(k, 1)) for each in most)
        return decision
