"""Decides how many drafts of each row a step verifies. Pure.

Without a `Selection` in the plan: all that were planned and came. With one, `selection.select` has
its budget, and rows whose drafts did not come leave their share to the others. What is chosen never
reaches an output where acceptance is coupled, nor in greedy rows. Where a row samples and
acceptance is by rejection it would: such rows verify all their drafts, outside the budget.

A drafter may send no scores. Then its drafts count as if each had the same one, so that the first
drafts of all rows come before any second one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from minedraft.selection import Scored, select, temperature_class
from minedraft.types import Acceptance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.packets.rows import DraftedRow
    from minedraft.plans import VerifyRow
    from minedraft.selection import Selection
    from minedraft.types import RowParams

NO_SCORE: Final = math.log(2)
"""Score of drafts without one: as a surprisal, of one that stands half the time."""


def num_verified(
    rows: Sequence[VerifyRow],
    drafted: Sequence[DraftedRow | None],
    params: Sequence[RowParams],
    selection: Selection | None,
    rule: Acceptance,
) -> list[int]:
    """Count the drafts to verify of each row.

    Args:
        rows: Of the plan.
        drafted: Their usable drafts; None: none came.
        params: Of each row.
        selection: Of the plan.
        rule: How drafts are accepted at temperature > 0.

    Returns:
        0..the planned number, of each row; the first so many of its drafts.
    """
    counts = [
        0 if drafts is None else min(len(drafts.token_ids), planned.num_draft_tokens)
        for planned, drafts in zip(rows, drafted, strict=True)
    ]
    if selection is None:
        return counts
    scored = []
    for index, (drafts, count, own) in enumerate(zip(drafted, counts, params, strict=True)):
        if drafts is None or (rule is Acceptance.REJECTION and not own.is_greedy):
            continue
        scores = drafts.scores[:count] or (NO_SCORE,) * count
        scored.append(Scored(index, temperature_class(own.temperature), scores))
    for row, count in zip(scored, select(scored, selection), strict=True):
        counts[row.row] = count
    return counts
