"""Totals since start. They only grow. Pure."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from minedraft import admin

if TYPE_CHECKING:
    from minedraft.services.coordinator.core.answers import Answer


class Counters(admin.Counters):
    """What the coordinator has done; `accepted <= draft tokens` always holds."""

    __slots__ = ()

    def snapshot(self) -> admin.Counters:
        """Copy them for an operator."""
        return admin.Counters(**{each.name: getattr(self, each.name) for each in fields(self)})

    def finished(self, reason: str) -> None:
        """Count one end."""
        # Another mapping each time: snapshots keep theirs.
        count = self.num_finished.get(reason, 0) + 1
        self.num_finished = {**self.num_finished, reason: count}

    def verified(self, answer: Answer, num_stale_drafts: int, num_behind: int) -> None:
        """Count one verify step."""
        self.num_steps += 1
        self.num_stale_drafts += num_stale_drafts
        self.num_behind_rows += num_behind
        self.num_drafts += answer.num_drafts
        self.num_draft_tokens += answer.num_draft_tokens
        self.num_accepted_tokens += answer.num_accepted_tokens
        self.num_broken_rows += answer.num_broken_rows
