"""The interface of a policy, and the table of all policies."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from minedraft.policy_options import check_policy
from minedraft.services.coordinator.core.policies.adaspec import AdaSpec
from minedraft.services.coordinator.core.policies.dspark import DSpark
from minedraft.services.coordinator.core.policies.fixed import Fixed
from minedraft.services.coordinator.core.policies.goodput import Goodput
from minedraft.services.coordinator.core.policies.schedule import Schedule
from minedraft.services.coordinator.core.policies.tetris import Tetris
from minedraft.services.coordinator.core.policies.wcs import Wcs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from minedraft.policy_options import PolicyOptions
    from minedraft.services.coordinator.core.decision import Decision
    from minedraft.services.coordinator.core.step_view import StepView


class StepPolicy(Protocol):
    """Decides how many tokens each member of a batch drafts and feeds in its next step.

    It never changes an output: which drafts are made is the drafter's and the policy's, which
    tokens stand is the target's. It may keep state from step to step.
    """

    @property
    def note(self) -> str:
        """Why it does as `fixed` does at present, for people; empty: it does not."""

    def choose(self, view: StepView) -> Decision:
        """Decide one step, before any block is allocated for it."""


POLICIES: Final[Mapping[str, Callable[[PolicyOptions], StepPolicy]]] = MappingProxyType(
    {
        "fixed": Fixed,
        "schedule": Schedule,
        "goodput": Goodput,
        "tetris": Tetris,
        "adaspec": AdaSpec,
        "dspark": DSpark,
        "wcs": Wcs,
    }
)


def policy_named(name: str, options: PolicyOptions) -> StepPolicy:
    """Make a policy.

    Raises:
        ConfigError: there is none of this name, or it lacks a setting.
    """
    check_policy(name, options)
    return POLICIES[name](options)
