"""Totals since start. They only grow. Pure."""

from __future__ import annotations

from dataclasses import fields
from itertools import accumulate
from typing import TYPE_CHECKING

from minedraft import admin
from minedraft.plans import MAX_DRAFT_TOKENS

if TYPE_CHECKING:
    from minedraft.plans import DraftResult
    from minedraft.services.coordinator.core.answers import Answer


class Counters(admin.Counters):
    """What the coordinator has done; `accepted <= draft tokens` always holds.

    Args:
        totals: Where some begin; the others begin at 0.
    """

    __slots__ = ("_rows_by_accepted", "_rows_by_drafted")

    def __init__(self, **totals: int) -> None:
        super().__init__()
        for name, total in totals.items():
            setattr(self, name, total)
        self._rows_by_drafted = [0] * (MAX_DRAFT_TOKENS + 1)
        self._rows_by_accepted = [0] * (MAX_DRAFT_TOKENS + 1)

    def snapshot(self) -> admin.Counters:
        """Copy them for an operator."""
        self.num_drafted_per_position = _at_least(self._rows_by_drafted)
        self.num_accepted_per_position = _at_least(self._rows_by_accepted)
        return admin.Counters(**{each.name: getattr(self, each.name) for each in fields(self)})

    def finished(self, reason: str) -> None:
        """Count one end."""
        # Another mapping each time: snapshots keep theirs.
        count = self.num_finished.get(reason, 0) + 1
        self.num_finished = {**self.num_finished, reason: count}

    def drafted(self, result: DraftResult) -> None:
        """Count one draft step."""
        self.num_broken_drafts += result.num_broken
        self.num_drafted_tokens += result.num_draft_tokens

    def verified(self, answer: Answer, num_stale_drafts: int, num_behind: int) -> None:
        """Count one verify step."""
        self.num_steps += 1
        self.num_stale_drafts += num_stale_drafts
        self.num_behind_rows += num_behind
        self.num_drafts += answer.num_drafts
        self.num_draft_tokens += answer.num_draft_tokens
        self.num_accepted_tokens += answer.num_accepted_tokens
        self.num_broken_rows += answer.num_broken_rows
        self.num_ngram_tokens += answer.num_ngram_tokens
        self.num_accepted_ngram_tokens += answer.num_accepted_ngram_tokens
        for num_drafted, num_accepted in answer.judged:
            self._rows_by_drafted[num_drafted] += 1
            self._rows_by_accepted[num_accepted] += 1


def _at_least(rows: list[int]) -> tuple[int, ...]:
    """Turn rows by their number of tokens into rows that have a token at each position.

    Positions that no row ever had are left out.
    """
    counts = tuple(accumulate(reversed(rows[1:])))[::-1]
    return tuple(count for count in counts if count)
