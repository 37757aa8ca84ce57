"""The policy `schedule`: k by the number of sequences that decode in the step. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from minedraft.policy_options import read_schedule
from minedraft.services.coordinator.core.decision import Decision

if TYPE_CHECKING:
    from minedraft.policy_options import PolicyOptions
    from minedraft.services.coordinator.core.step_view import StepView


class Schedule:
    """See the module docstring.

    Args:
        options: Its `num_speculative_tokens_per_batch_size`.

    Raises:
        ConfigError: there is no schedule.
    """

    note = ""

    def __init__(self, options: PolicyOptions) -> None:
        self._ranges = read_schedule(options.num_speculative_tokens_per_batch_size)
        self._firsts = [each.first for each in self._ranges]

    def choose(self, view: StepView) -> Decision:
        """Draft the k of this batch size, but no more than the service's."""
        num_rows = len(view.most_draft_tokens)
        k = self._ranges[max(bisect_right(self._firsts, num_rows) - 1, 0)].num_draft_tokens
        return Decision.drafting(view, [k] * num_rows)
