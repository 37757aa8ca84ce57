"""The policy `goodput`: the one k for all sequences that commits most tokens per second. Pure.

As SmartSpec has it, from measured costs and the mean acceptance of the drafter. Every k is looked
at, not only those before the first that is worse; time of rotating batches is the longer leg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.services.coordinator.core.decision import Decision
from minedraft.services.coordinator.core.solver import best_k

if TYPE_CHECKING:
    from minedraft.policy_options import PolicyOptions
    from minedraft.services.coordinator.core.step_view import StepView

KEPT_STEPS: Final = 16
"""Steps that a k is kept for, of a batch that stays as large."""
PROBE_STEPS: Final = 64
"""Steps with k = 0 after which one drafts a token: nothing else tells that drafts got better."""


class Goodput:
    """See the module docstring."""

    def __init__(self, options: PolicyOptions) -> None:
        del options  # it has none
        self.note = ""
        self._kept: dict[int, tuple[tuple[int, int, int], int, int]] = {}
        """By batch: what it was decided for, k, and steps until the next look."""
        self._num_plain = 0

    def choose(self, view: StepView) -> Decision:
        """Draft the best k, but no more than the service's."""
        limits = view.limits
        if not limits.num_draft_tokens or not view.most_draft_tokens:
            return Decision.drafting(view, None)
        about = (len(view.most_draft_tokens), limits.source, limits.num_draft_tokens)
        known, k, num_left = self._kept.get(view.batch, (None, 0, 0))
        if known != about or not num_left:
            found = self._best(view)
            if found is None:
                self.note = "costs are not known yet"
                return Decision.drafting(view, None)
            self.note, k, num_left = "", found, KEPT_STEPS
        self._kept[view.batch] = (about, k, num_left - 1)
        if not k:
            self._num_plain += 1
            k = not self._num_plain % PROBE_STEPS
        return Decision.drafting(view, [int(k)] * len(view.most_draft_tokens))

    def _best(self, view: StepView) -> int | None:
        limits = view.limits
        mean = view.estimator.mean(limits.source)
        survival = [mean**position for position in range(1, limits.num_draft_tokens + 1)]
        return best_k(survival, view.most_draft_tokens, view.legs())
