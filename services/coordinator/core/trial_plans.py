"""Lists the trial steps that a mode asks for, and writes their plans. Pure.

Rows of a trial are dummies: its own plans open them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from minedraft.plans import MAX_ROWS, DraftPlan, DraftRow, OpenRow, VerifyPlan, VerifyRow
from minedraft.types import RowParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.types import Mode, RowId

_NUM_ROUNDS = 2
"""Trials of each size: a first one that stalled is recognized by the second."""
_NUM_AT_ONCE = 4
"""Trials of both workers at once."""
_NUM_PROMPT_TOKENS = (128, 512)
"""In one step: what prefill costs."""


class Trial(NamedTuple):
    """What one trial step does."""

    verify_rows: int = 0
    draft_rows: int = 0
    k: int = 0
    num_tokens: int = 1
    """Prompt tokens per row."""

    @property
    def num_rows(self) -> int:
        """Rows that it opens."""
        return max(self.verify_rows, self.draft_rows)


def verify_trials(mode: Mode) -> list[Trial]:
    """Sizes of a verify step, smallest first: 1 to all slots, alone and with k drafts each."""
    k = mode.num_draft_tokens
    sizes = {size * each for size in _sizes(mode.num_slots) for each in (1, k + 1)}
    steps = [Trial(verify_rows=size) for size in sorted(sizes) if size <= MAX_ROWS]
    prompts = [Trial(verify_rows=1, num_tokens=count) for count in _NUM_PROMPT_TOKENS]
    return steps * _NUM_ROUNDS + prompts


def draft_trials(mode: Mode) -> list[Trial]:
    """Sizes of a draft step, smallest first, and then both workers at once."""
    k, sizes = mode.num_draft_tokens, _sizes(mode.num_slots)
    steps = [Trial(draft_rows=size, k=each) for size in sizes for each in sorted({1, k})]
    prompts = [Trial(draft_rows=1, num_tokens=count) for count in _NUM_PROMPT_TOKENS]
    half = -(-mode.num_slots // 2)
    at_once = Trial(verify_rows=min(half * (k + 1), MAX_ROWS), draft_rows=half, k=k)
    return steps * _NUM_ROUNDS + prompts + [at_once] * _NUM_AT_ONCE


def opens(trial: Trial, row_ids: Sequence[RowId], vocab_size: int) -> tuple[OpenRow, ...]:
    """Rows of a trial. Their tokens differ: experts of a model are chosen by them."""
    return tuple(
        OpenRow(
            row_id,
            tuple((131 * index + 31 * each) % vocab_size for each in range(trial.num_tokens)),
            (),
            RowParams(),
        )
        for index, row_id in enumerate(row_ids[: trial.num_rows])
    )


def verify_plan(
    trial: Trial, step_id: int, batch: int, opened: Sequence[OpenRow], block_ids: Sequence[int]
) -> VerifyPlan:
    """Write the verifier's plan; each row has an equal share of the blocks."""
    count = len(block_ids) // trial.verify_rows
    return VerifyPlan(
        step_id,
        batch,
        0,
        rows=tuple(
            VerifyRow(
                row.row_id,
                trial.num_tokens,
                (),
                num_computed=0,
                num_feed=trial.num_tokens,
                num_draft_tokens=0,
                new_block_ids=tuple(block_ids[index * count : (index + 1) * count]),
                block_offset=0,
            )
            for index, row in enumerate(opened[: trial.verify_rows])
        ),
        opens=tuple(opened[: trial.verify_rows]),
    )


def draft_plan(
    trial: Trial, step_id: int, batch: int, opened: Sequence[OpenRow], source: int
) -> DraftPlan:
    """Write the drafter's plan."""
    return DraftPlan(
        step_id,
        batch,
        source,
        rows=tuple(
            DraftRow(row.row_id, trial.num_tokens, (), trial.k)
            for row in opened[: trial.draft_rows]
        ),
        opens=tuple(opened[: trial.draft_rows]),
        is_trial=True,
    )


def _sizes(num_slots: int) -> list[int]:
    """Powers of two below a number, and the number."""
    return [1 << bits for bits in range((num_slots - 1).bit_length())] + [num_slots]
