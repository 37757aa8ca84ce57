"""The interface of every kind of drafter: it appends drafts to the rows of a step. No torch.

The engine keeps what all kinds share: open rows, their KV blocks, the budget of catch-up, the
packet. A proposer decides which tokens to draft.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from minedraft.model.batch import RowInput
from minedraft.plans import Score
from minedraft.selection import temperature_class
from minedraft.types import MAX_MARGIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.model.runner import ModelRunner
    from minedraft.plans import DraftRow, Stop
    from minedraft.services.drafter.rows import Row
    from minedraft.worker.stopwatch import Stopwatch

Candidates = tuple[tuple[int, ...], tuple[float, ...]]
"""Ids and their probabilities: the distribution that a draft was drawn from."""


@dataclass(slots=True)
class Drafting:
    """One row of a step while it is drafted for."""

    planned: DraftRow
    row: Row
    due: list[int] = field(default_factory=list)
    """Committed tokens to feed in this step."""
    is_ready: bool = False
    """Whether to draft for it: k > 0, and its KV cache has caught up once `due` is fed."""
    drafts: list[int] = field(default_factory=list)
    q: list[Candidates] = field(default_factory=list)
    """One per draft."""
    score: Score = Score.NONE
    """What the step says of each draft."""
    scores: list[float] = field(default_factory=list)
    """One per draft, if the step says any."""
    stop: Stop | None = None
    """When to draft no more; only with a score."""
    offset: float = 0.0
    """Of this row, for `stop`."""
    survival: float = 1.0
    """Probability that all its drafts stand, as `stop` sees it."""
    is_behind: bool = False
    """Committed tokens wait for the next step's budget."""
    is_broken: bool = False
    """Drafts are missing because the model's logits are no distribution."""
    is_hopeless: bool = False
    """The model has no numbers for its committed tokens: to draft again would change nothing."""
    is_ahead: bool = False
    """Whether its step is over, and it goes on with drafts beyond those that it sent."""
    num_reused: int = 0
    """Drafts that were drawn ahead of this step."""

    @property
    def wants_more(self) -> bool:
        """Whether to draft another token for it."""
        return (
            not self.is_broken
            and len(self.drafts) < self.planned.num_draft_tokens
            and (self.stop is None or not self.drafts or self.survival >= self.stop.below)
        )

    def add(self, token: int, q: Candidates | None = None, score: float | None = None) -> None:
        """Append a draft.

        Args:
            token: Its id.
            q: What it was drawn from; None: it was not drawn, so its distribution is a delta.
            score: Finite, >= 0; None: what a delta has.
        """
        if self.score is not Score.NONE:
            if score is None:
                score = MAX_MARGIN if self.score is Score.MARGIN else 0.0
            if self.stop is not None:
                group = temperature_class(self.row.sampling.params.temperature)
                position = len(self.drafts)
                self.survival *= self.stop.curves.factor(group, position, score, self.offset)
            self.scores.append(score)
        self.drafts.append(token)
        self.q.append(((token,), (1.0,)) if q is None else q)

    def feed_due(self) -> RowInput:
        """Write the KV of what is due; logits of the last position if the row is ready."""
        row = self.row
        given = RowInput(self.due, len(row.cached), row.block_ids, num_logits=int(self.is_ready))
        row.cached += self.due
        row.num_agreed = len(row.cached)
        return given

    def feed_draft(self) -> RowInput:
        """Write the KV of the newest draft, for the logits after it."""
        row, newest = self.row, self.drafts[-1:]
        start = self.planned.base_len + len(self.drafts) - 1
        if self.is_ahead:  # `Row.cached` is what a drafter has that never draws ahead
            return RowInput(newest, start, row.block_ids + (row.ahead_block_ids or []), 1)
        row.cached += newest
        return RowInput(newest, start, row.block_ids, 1)


class Proposer(Protocol):
    """Where the drafts of a step come from. Called on the device thread."""

    @property
    def reads_kv(self) -> bool:
        """Whether it drafts from KV of all tokens before.

        If so, rows are given blocks for their committed tokens and all drafts but the last, and
        only rows whose catch-up is within the step's budget are drafted for. If not, all rows are,
        and their committed tokens (`Row.sampling`) are all there is.
        """

    def propose(self, batch: Sequence[Drafting]) -> int:
        """Feed each row what is due, and append drafts to those that are ready and want more.

        Args:
            batch: Rows of one step, at least one; some may have drafts already.

        Returns:
            Forward passes that it took.
        """

    def go_on(self, batch: Sequence[Drafting]) -> None:
        """Append one more draft to each row, in one forward pass.

        Args:
            batch: Rows with drafts, at least one. One whose logits are no distribution is broken
                afterwards.
        """


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a proposer may use."""

    runner: ModelRunner
    watch: Stopwatch
    """Times the parts `forward` and `sample` of a step."""
    q_width: int
    """(id, probability) pairs to send with each draft; 0: ids only."""
