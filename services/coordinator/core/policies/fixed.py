"""The policy `fixed`: every sequence drafts the k that its caller and the service ask for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.services.coordinator.core.decision import Decision

if TYPE_CHECKING:
    from minedraft.policy_options import PolicyOptions
    from minedraft.services.coordinator.core.step_view import StepView


class Fixed:
    """See the module docstring."""

    note = ""

    def __init__(self, options: PolicyOptions | None = None) -> None:
        del options  # it has none

    def choose(self, view: StepView) -> Decision:
        """Draft as many tokens as wanted; feed prompts as fast as the budget allows."""
        return Decision.drafting(view, None)
