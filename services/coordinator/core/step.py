"""One verify step of one batch, from its plan to its result. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minedraft.plans import Score

if TYPE_CHECKING:
    from minedraft.services.coordinator.core.request import Request
    from minedraft.types import RowId


@dataclass(slots=True)
class Step:
    """A verify step in flight."""

    step_id: int
    batch: int
    requests: dict[RowId, Request]
    """By row: live requests that are still in the rows of this step."""
    num_draft_tokens: dict[RowId, int]
    """k as planned."""
    num_scheduled_tokens: int = 0
    """Committed tokens that it feeds, all rows together."""
    num_behind: int = 0
    """Rows that decode without drafts because their draft source has not caught up with them."""
    context: int = 0
    """Committed tokens of all its rows, as far as they are in the KV cache then."""
    source: int = 0
    """Draft source whose drafts it waits for; 0: none."""
    score: Score = Score.NONE
    """What the drafter is asked to say of each draft."""
    is_wide: bool = False
    """Whether it computes on the verifier's spare threads too."""
    is_drafted: bool = False
    """Whether the drafter has said that it is done."""
    began_early: bool = False
    """Whether the verifier began it before that: drafts that it lacks came late, or never."""
    block_keys: tuple[bytes, ...] = ()
    """Keys of the blocks that it fills with prompts."""
    is_trial: bool = False
    """Whether it only measures: it has no requests, and nothing counts it."""
    num_ngram_tokens: dict[RowId, int] = field(default_factory=dict)
    """Most drafts of the verifier's own, of rows that may have any where none come."""
    orphans: list[int] = field(default_factory=list)
    """Blocks of rows that ended while the step was in flight; freed with it."""
    orphan_rows: list[RowId] = field(default_factory=list)
    """Those rows; closed with it, not before: a plan of another batch may overtake its plan."""
