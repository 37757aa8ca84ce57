"""Has the policy decide each step, changes it live, and says what it decided lately. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.admin import PolicyStatus
from minedraft.errors import ConfigError, IncompatibleWorkerError
from minedraft.plans import MAX_DRAFT_TOKENS
from minedraft.policy_options import check_length, check_policy, extra_draft_tokens
from minedraft.services.coordinator.core.policy import policy_named

if TYPE_CHECKING:
    from minedraft.policy_options import PolicyOptions
    from minedraft.services.coordinator.core.decision import Decision
    from minedraft.services.coordinator.core.step_view import StepView
    from minedraft.types import Mode

_WEIGHT: Final = 0.05
"""Of a step in the means."""


class Decider:
    """See the module docstring.

    Args:
        name: Of the policy.
        options: Of all policies.

    Raises:
        ConfigError: there is no policy of this name, or it lacks a setting.
    """

    def __init__(self, name: str, options: PolicyOptions) -> None:
        self.name = name
        self._options = options
        self._policy = policy_named(name, options)
        self._mean_k = self._mean_budget = 0.0
        self._num_steps = 0

    def set(self, name: str) -> None:
        """Go on with another policy; it begins anew, even if it has the same name.

        Raises:
            ConfigError: there is none of this name, or it lacks a setting.
        """
        self._policy, self.name = policy_named(name, self._options), name
        self._mean_k, self._mean_budget, self._num_steps = 0.0, 0.0, 0

    def check(self, mode: Mode, *, acceptance: str, max_draft_tokens: int) -> None:
        """Check that the policy of a mode can be here.

        Args:
            mode: It; one without a policy goes on with this one.
            acceptance: Rule of the verifier; empty: not known yet.
            max_draft_tokens: Draft tokens per row that packets of links have room for.

        Raises:
            ConfigError: there is none of this name, or it cannot be.
        """
        name = mode.policy or self.name
        check_policy(name, self._options, acceptance=acceptance)
        check_length(name, self._options, k=mode.num_draft_tokens, most=max_draft_tokens)

    def check_verifier(self, acceptance: str) -> None:
        """Check that a verifier with this rule of acceptance bears the policy.

        Raises:
            IncompatibleWorkerError: it does not.
        """
        try:
            check_policy(self.name, self._options, acceptance=acceptance)
        except ConfigError as err:
            raise IncompatibleWorkerError(str(err)) from None

    def most_draft_tokens(self, k: int) -> int:
        """Most draft tokens of a row where the service has this k."""
        return min(k + extra_draft_tokens(self.name, self._options), MAX_DRAFT_TOKENS) if k else 0

    def typical_draft_tokens(self, k: int) -> int:
        """Draft tokens of a row lately, 1..k: what shapes are priced by."""
        if self.name == "fixed" or not self._num_steps:
            return k
        return min(max(round(self._mean_k), 1), k)

    def choose(self, view: StepView) -> Decision:
        """Decide one step."""
        decision = self._policy.choose(view).bounded_by(view)
        ks = decision.num_draft_tokens
        if ks:
            self._num_steps += 1
            weight = max(_WEIGHT, 1 / self._num_steps)
            self._mean_k += weight * (sum(ks) / len(ks) - self._mean_k)
            if decision.score or decision.budget is not None:
                budget = sum(ks) if decision.budget is None else decision.budget
                self._mean_budget += weight * (budget - self._mean_budget)
        return decision

    def status(self) -> PolicyStatus:
        """What it decided lately."""
        return PolicyStatus(self.name, self._policy.note, self._mean_k, self._mean_budget)
