"""Totals since start. They only grow. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minedraft.services.coordinator.core.answers import Answer


@dataclass(slots=True)
class Counters:
    """What the coordinator has done; `accepted <= draft tokens` always holds."""

    num_requests: int = 0
    num_output_tokens: int = 0
    num_steps: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_stale_drafts: int = 0
    num_stale_results: int = 0
    num_preemptions: int = 0
    num_broken_rows: int = 0
    num_broken_drafts: int = 0
    num_finished: dict[str, int] = field(default_factory=dict)

    def finished(self, reason: str) -> None:
        """Count one end."""
        self.num_finished[reason] = self.num_finished.get(reason, 0) + 1

    def verified(self, answer: Answer, num_stale_drafts: int) -> None:
        """Count one verify step."""
        self.num_steps += 1
        self.num_stale_drafts += num_stale_drafts
        self.num_drafts += answer.num_drafts
        self.num_draft_tokens += answer.num_draft_tokens
        self.num_accepted_tokens += answer.num_accepted_tokens
        self.num_broken_rows += answer.num_broken_rows
