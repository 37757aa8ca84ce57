"""The policy `adaspec`: a sequence drafts on while its drafts are worth their time. Pure.

As AdaSpec has it, but per sequence and not for the whole batch: a row stops after the first draft
whose survival is under the price. What is verified of the drafts is cut to a measured size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.plans import Score
from minedraft.services.coordinator.core.decision import Decision
from minedraft.services.coordinator.core.lengths import Lengths

if TYPE_CHECKING:
    from minedraft.policy_options import PolicyOptions
    from minedraft.services.coordinator.core.step_view import StepView


class AdaSpec:
    """See the module docstring.

    Args:
        options: Its SLO.
    """

    def __init__(self, options: PolicyOptions) -> None:
        self.note = ""
        self._lengths = Lengths(options.tpot_slo_ms * 1e6)

    def choose(self, view: StepView) -> Decision:
        """Draft until the price; nothing where not even a first draft pays."""
        if not any(view.most_draft_tokens):
            return Decision.drafting(view, None)
        self.note = view.why_no_scores
        plan = None if self.note else self._lengths.of(view)
        if plan is None:
            self.note = self.note or "costs are not known yet"
            decision = Decision.drafting(view, None)
            decision.score = Score.MARGIN
            return decision
        if not plan.budget:
            decision = Decision.drafting(view, plan.lengths)  # a probe now and then
            decision.score = Score.MARGIN
            return decision
        decision = Decision.drafting(view, None)
        decision.score, decision.curves = Score.MARGIN, view.curves()
        decision.budget, decision.stop_below = plan.budget, plan.threshold
        return decision
