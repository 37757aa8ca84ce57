"""The policy `dspark`: all sequences draft k; the budget comes from the last drafts' scores. Pure.

As DSpark has it: the budget is set before the drafts that fill it are made, so it says nothing of
them. All sizes are looked at, not only those before the first that is worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.plans import Score
from minedraft.services.coordinator.core.costs import per_depth
from minedraft.services.coordinator.core.decision import Decision
from minedraft.services.coordinator.core.solver import solve

if TYPE_CHECKING:
    from minedraft.policy_options import PolicyOptions
    from minedraft.services.coordinator.core.step_view import StepView


class DSpark:
    """See the module docstring.

    Args:
        options: Its SLO.
    """

    def __init__(self, options: PolicyOptions) -> None:
        self.note = ""
        self._slo_ns = options.tpot_slo_ms * 1e6 or float("inf")
        self._budgets: dict[int, int] = {}
        """By batch."""

    def choose(self, view: StepView) -> Decision:
        """Draft k; verify as much as pays by the scores of the last drafts."""
        decision = Decision.drafting(view, None)
        most = view.most_draft_tokens
        if not any(most):
            return decision
        decision.score = Score.MARGIN
        self.note = view.why_no_scores
        if self.note:
            return decision
        found = solve(
            view.last_survivals(),
            view.legs(),
            last_budget=self._budgets.get(view.batch),
            slo_ns=self._slo_ns,
            drafted=per_depth(most),
        )
        if found is None:
            self.note = "costs are not known yet"
            return decision
        self._budgets[view.batch] = found.budget
        decision.budget, decision.curves = found.budget, view.curves()
        return decision
