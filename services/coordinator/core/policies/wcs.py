"""The policy `wcs`: draft lengths by forecast, a verify budget, and drafts chosen by score. Pure.

Work-conserving speculation, as ForeSpark has it: before a step the forecast of each sequence says
how long it drafts and how many drafts are verified in all, both from one order. Once the drafts
have scores, the verifier gives the budget to the likeliest of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.plans import Score
from minedraft.services.coordinator.core.decision import Decision
from minedraft.services.coordinator.core.lengths import Lengths

if TYPE_CHECKING:
    from minedraft.policy_options import PolicyOptions
    from minedraft.services.coordinator.core.step_view import StepView

LEARN_STEPS: Final = 4
"""One step in so many has scores even if nothing is chosen by them: what they say is learned."""


class Wcs:
    """See the module docstring.

    Args:
        options: Its SLO.
    """

    def __init__(self, options: PolicyOptions) -> None:
        self.note = ""
        self._num_steps = 0
        self._lengths = Lengths(options.tpot_slo_ms * 1e6)

    def choose(self, view: StepView) -> Decision:
        """Draft as long as it pays; verify as much as it pays."""
        if not any(view.most_draft_tokens):
            return Decision.drafting(view, None)
        self.note = view.why_no_scores
        plan = None if self.note else self._lengths.of(view)
        if plan is None:
            self.note = self.note or "costs are not known yet"
            decision = Decision.drafting(view, None)
            decision.score = Score.MARGIN  # whether it sends any is known by asking
            return decision
        decision = Decision.drafting(view, plan.lengths)
        self._num_steps += 1
        chooses = sum(plan.lengths) > plan.budget
        if chooses or self._num_steps % LEARN_STEPS == 0:
            decision.score = Score.MARGIN
        if chooses:
            decision.budget, decision.curves = plan.budget, view.curves()
        return decision
