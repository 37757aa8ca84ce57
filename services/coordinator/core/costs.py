"""Learns the costs of steps and the acceptance of drafts from results, for policies. Pure.

Results bring their own durations, so there is no clock here. What is known of a draft source begins
with its link and ends with it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from minedraft.services.coordinator.core.acceptance import Acceptance
from minedraft.services.coordinator.core.durations import Durations

if TYPE_CHECKING:
    from minedraft.plans import DraftResult
    from minedraft.services.coordinator.core.answers import Answer
    from minedraft.services.coordinator.core.step import Step

DRAFT_TIMEOUT_FLOOR_NS = 1 * 10**9
DRAFT_TIMEOUT_CEILING_NS = 10 * 10**9
_DRAFT_TIMEOUT_FACTOR = 6
"""Times the longest of the last draft steps; generous, because a step without drafts is dear and
a dead drafter is noticed by its link, not by this."""
_NUM_RECENT_DRAFTS = 16


class SourceCosts:
    """What drafts of one source cost, and how many of them stand."""

    def __init__(self) -> None:
        self.acceptance = Acceptance()
        self.column = Durations()
        """Drafting one more token for each of so many rows."""
        self.recent_ns: deque[int] = deque(maxlen=_NUM_RECENT_DRAFTS)
        """Durations of the last draft steps."""

    def observe(self, result: DraftResult) -> None:
        """Learn from a draft step; a warm-up or a prefill says nothing of drafts."""
        if not result.num_rows:
            return
        self.recent_ns.append(result.timing.total_ns)
        depth = max(math.ceil(result.num_draft_tokens / result.num_rows), 1)
        self.column.observe(result.num_rows, result.timing.total_ns / depth)


_NO_SOURCE = SourceCosts()
"""The costs without a draft source; they never change."""


class Costs:
    """See the module docstring.

    Args:
        step_timeout_s: What a verifier may take for a step. Drafts are waited for during a quarter
            of that at the most, or it would be left for what a drafter owes.
    """

    def __init__(self, step_timeout_s: float = math.inf) -> None:
        self.verify = Durations()
        """A verify step of so many tokens, scheduled ones and drafts."""
        self._max_draft_timeout_ns = int(min(DRAFT_TIMEOUT_CEILING_NS, step_timeout_s / 4 * 1e9))
        self._sources: dict[int, SourceCosts] = {}
        """By number of the source."""

    def add_source(self, source: int) -> None:
        """A draft source was linked; nothing is known of it."""
        self._sources[source] = SourceCosts()

    def drop_source(self, source: int) -> None:
        """It is over. Unknown numbers are fine."""
        self._sources.pop(source, None)

    def of_source(self, source: int) -> SourceCosts:
        """What is known of a draft source; nothing of one that is not linked. Read only."""
        return self._sources.get(source, _NO_SOURCE)

    def drafted(self, result: DraftResult) -> None:
        """Learn from a draft step."""
        if result.epoch in self._sources:
            self._sources[result.epoch].observe(result)

    def verified(self, step: Step, answer: Answer, duration_ns: int) -> None:
        """Learn from a verify step."""
        self.verify.observe(step.num_scheduled_tokens + answer.num_draft_tokens, duration_ns)
        if answer.num_drafts and step.source in self._sources:
            acceptance = self._sources[step.source].acceptance
            acceptance.observe(answer.num_accepted_tokens, answer.num_refused_tokens)

    def draft_timeout_ns(self, source: int, num_ahead: int = 0) -> int:
        """Longest wait for drafts of this source, from when both plans of a step leave.

        Args:
            source: Number of the source.
            num_ahead: Steps that it drafts before this one: its plans run first in, first out.
        """
        recent_ns = self.of_source(source).recent_ns
        if not recent_ns:
            return self._max_draft_timeout_ns
        timeout_ns = max(
            DRAFT_TIMEOUT_FLOOR_NS, (_DRAFT_TIMEOUT_FACTOR + num_ahead) * max(recent_ns)
        )
        return min(timeout_ns, self._max_draft_timeout_ns)
