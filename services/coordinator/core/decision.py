"""The decision of a policy for a batch's next step. Pure values.

A policy may ask for anything: what it gets is bounded by what each sequence has room for, by the
limits of the step, and, for drafts, by what caller and service ask for and by free blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.plans import Score
from minedraft.selection import NO_CURVES

if TYPE_CHECKING:
    from minedraft.selection import Curves
    from minedraft.services.coordinator.core.step_view import StepView


@dataclass(slots=True)
class Decision:
    """One entry per member, in the order of the `StepView`."""

    num_draft_tokens: list[int] | None
    """k of each member that decodes; None: as many as each wants and has room for."""
    num_prefill_tokens: list[int]
    """Most prompt tokens to feed of each member that prefills."""
    prefill_budget_tokens: int
    """Most prompt tokens of all members together; they get it oldest first."""
    score: Score = Score.NONE
    """What the drafter says of each draft."""
    budget: int | None = None
    """Drafts that are verified at the most, all members together, the likeliest; None: all."""
    stop_below: float = 0.0
    """A member stops after its first draft whose survival is under this; 0: it does not."""
    curves: Curves = NO_CURVES
    """From scores to survivals."""

    @classmethod
    def drafting(cls, view: StepView, num_draft_tokens: list[int] | None) -> Decision:
        """Draft so much; feed prompts as fast as the budget allows."""
        return cls(
            num_draft_tokens,
            [member.num_missing_tokens for member in view.prefilling],
            view.limits.prefill_budget_tokens,
        )

    def bounded_by(self, view: StepView) -> Decision:
        """The same, within what each member wants and has room for, and the limits of the step."""
        most = view.most_draft_tokens
        ks = self.num_draft_tokens
        return Decision(
            most if ks is None else [max(min(k, n), 0) for k, n in zip(ks, most, strict=True)],
            [
                min(num_tokens, member.num_missing_tokens)
                for num_tokens, member in zip(self.num_prefill_tokens, view.prefilling, strict=True)
            ],
            min(self.prefill_budget_tokens, view.limits.prefill_budget_tokens),
            self.score,
            self.budget,
            self.stop_below,
            self.curves,
        )
