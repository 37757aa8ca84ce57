"""The interface of every kind of drafter: it appends drafts to the rows of a step. No torch.

The engine keeps what all kinds share: open rows, their KV blocks, the budget of catch-up, the
packet. A proposer decides which tokens to draft.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from minedraft.model.batch import RowInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.model.runner import ModelRunner
    from minedraft.plans import DraftRow
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
    is_behind: bool = False
    """Committed tokens wait for the next step's budget."""
    is_broken: bool = False
    """Drafts are missing because the model's logits are no distribution."""
    is_hopeless: bool = False
    """The model has no numbers for its committed tokens: to draft again would change nothing."""

    def add(self, token: int, q: Candidates | None = None) -> None:
        """Append a draft. Without `q` it was not drawn, so its distribution is a delta."""
        self.drafts.append(token)
        self.q.append(((token,), (1.0,)) if q is None else q)

    def feed_due(self) -> RowInput:
        """Write the KV of what is due; logits of the last position if the row is ready."""
        given = self._feed(self.due, num_logits=int(self.is_ready))
        self.row.num_agreed = len(self.row.cached)
        return given

    def feed_draft(self) -> RowInput:
        """Write the KV of the newest draft, for the logits after it."""
        return self._feed(self.drafts[-1:], num_logits=1)

    def _feed(self, token_ids: list[int], *, num_logits: int) -> RowInput:
        row = self.row
        given = RowInput(token_ids, len(row.cached), row.block_ids, num_logits)
        row.cached += token_ids
        return given


class Proposer(Protocol):
    """Where the drafts of a step come from. Called on the device thread."""

    @property
    def reads_kv(self) -> bool:
        """Whether it drafts from KV of all tokens before.

        If so, rows are given blocks for their committed tokens and all drafts but the last, and
        only rows whose catch-up is within the step's budget are drafted for. If not, all rows are,
        and their committed tokens (`Row.sampling`) are all there is.
        """

    def propose(self, batch: Sequence[Drafting]) -> None:
        """Feed each row what is due, and append up to k drafts to those that are ready.

        Args:
            batch: Rows of one step, at least one.
        """


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a proposer may use."""

    runner: ModelRunner
    watch: Stopwatch
    """Times the parts `forward` and `sample` of a step."""
    q_width: int
    """(id, probability) pairs to send with each draft; 0: ids only."""
