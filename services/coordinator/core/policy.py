"""The interface of a policy, and the table of all policies."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from minedraft.errors import InvalidRequestError
from minedraft.services.coordinator.core.policies.fixed import Fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from minedraft.services.coordinator.core.decision import Decision
    from minedraft.services.coordinator.core.step_view import StepView


class StepPolicy(Protocol):
    """Decides how many tokens each member of a batch drafts and feeds in its next step.

    It never changes an output: which drafts are made is the drafter's and the policy's, which
    tokens stand is the target's. It may keep state from step to step.
    """

    def choose(self, view: StepView) -> Decision:
        """Decide one step, before any block is allocated for it."""


POLICIES: Final[Mapping[str, Callable[[], StepPolicy]]] = MappingProxyType(
    {
        "fixed": Fixed,
    }
)


def policy_named(name: str) -> StepPolicy:
    """Make a policy.

    Raises:
        InvalidRequestError: there is none of this name.
    """
    try:
        return POLICIES[name]()
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise InvalidRequestError(
            f"policy is {name!r}, want one of: {known}", field="policy"
        ) from None
