"""Draws ahead of the next plan while the target verifies: one forward pass at a time.

A draft is a function of the tokens before it, of parameters, seed and position. So the token after
the last draft is a guess of the target's bonus token, and those after it are drafts of the next
step. When its plan comes, what agrees with the committed tokens is used. The packet is the same
byte for byte with and without it: budget, blocks and `Row.cached` are decided as if nothing had
been drawn ahead, and only then is fed what lacks KV, and drawn what is not drawn yet.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.services.drafter.proposer import Candidates, Drafting, Proposer
    from minedraft.services.drafter.rows import DrafterRows
    from minedraft.types import RowId

    Drawn = tuple[int, Candidates, float | None]
    """A token, what it was drawn from, and its score."""

AUTO: Final = "auto"
OFF: Final = "off"
MAX_RUN_AHEAD: Final = 64
"""Tokens per row."""
_LEAST_SAVED: Final = 0.05
"""Share of forward passes of steps: with `auto`, less is not worth the passes ahead."""
_FIRST_SAVED: Final = 0.2
"""What it is taken to be before it is known."""
_WEIGHT: Final = 1 / 32
"""Of a step, in that share."""
_PAUSE_STEPS: Final = 256
"""Steps after which `auto` tries again."""


def parse_run_ahead(text: str) -> int | None:
    """Read the setting.

    Returns:
        Most tokens per row beyond its drafts; 0: off; None: `auto`.

    Raises:
        ConfigError: none of them, or out of range.
    """
    if text == AUTO:
        return None
    if text == OFF:
        return 0
    if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= MAX_RUN_AHEAD:
        return int(text)
    raise ConfigError(f"run_ahead={text[:32]!r}: want auto, off or 1..{MAX_RUN_AHEAD}")


class RunAhead:
    """See the module docstring.

    Args:
        rows: The open rows, and their blocks.
        proposer: Who draws.
        limit: Most tokens per row beyond its drafts; 0: none; None: one more than its k, which is
            all that the next step can use, while that saves passes.
        max_len: Positions that the model has.
    """

    def __init__(
        self, rows: DrafterRows, proposer: Proposer, *, limit: int | None, max_len: int
    ) -> None:
        self.num_drawn = 0
        """Tokens drawn ahead."""
        self.num_used = 0
        """Of them, those that became drafts of a step."""
        self.longest_wait_ns = 0
        """Longest that a plan waited for a pass that was under way."""
        self._rows = rows
        self._proposer = proposer
        self._limit = limit if proposer.reads_kv else 0
        self._max_len = max_len
        self._items: dict[RowId, Drafting] = {}
        """Rows of the last step, with all that is drawn of them."""
        self._beyond: dict[RowId, list[Drawn]] = {}
        """Of rows of this step, what was drawn past its drafts."""
        self._going: list[Drafting] = []
        """Rows to draw another token of."""
        self._last_end_ns = 0
        self._saved, self._num_paused = _FIRST_SAVED, 0

    @property
    def has_work(self) -> bool:
        """Whether there is something to draw ahead."""
        return bool(self._going)

    def go_on(self) -> None:
        """Draw one more token of each row: one forward pass."""
        going, self._going = self._going, []
        batch = [
            item
            for item in going
            # The newest draft is fed.
            if self._rows.reserve_ahead(item.row, item.planned.base_len + len(item.drafts))
        ]
        if not batch:
            return
        self._proposer.go_on(batch)
        self.num_drawn += sum(not item.is_broken for item in batch)
        self._going = [item for item in batch if self._has_room(item)]
        self._last_end_ns = time.perf_counter_ns()

    def stop(self) -> None:
        """Draw no more until the next step; what is drawn stays."""
        self._going = []

    def forget_closed(self) -> None:
        """Rows may have been closed, or opened anew with the ids of others."""
        self._items = {
            row_id: item
            for row_id, item in self._items.items()
            if self._rows.is_open(item.row, row_id)
        }
        self._going = [item for item in self._going if item.planned.row_id in self._items]

    # -- a step -----------------------------------------------------------------------------

    def begin(self, plan_ns: int) -> None:
        """A step begins, whose plan came at `plan_ns` (perf_counter)."""
        self.stop()
        self._beyond = {}
        self.longest_wait_ns = max(self.longest_wait_ns, self._last_end_ns - plan_ns)

    def resume(self, item: Drafting) -> None:
        """Use what was drawn ahead of a row, which has its blocks and knows what is due."""
        row = item.row
        last = self._items.get(item.planned.row_id)
        if last is None or last.row is not row or row.ahead_block_ids is None or not item.is_ready:
            return
        start, length = last.planned.base_len, item.planned.base_len
        if length < start or len(row.cached) < min(start, length - 1):
            return  # what was committed then is not any more
        committed = [row.token(position) for position in range(start, length)]
        num_agreed = 0
        for drawn, token in zip(last.drafts, committed, strict=False):
            if drawn != token:
                break
            num_agreed += 1
        rest = _drawn(last)[num_agreed:]
        if num_agreed < len(committed) or not rest or last.score is not item.score:
            # The newest draft was not fed, and the last committed token has to be.
            num_held = min(start + min(num_agreed, len(last.drafts) - 1), length - 1)
            self._skip(item, num_held - len(row.cached))
            return
        self._skip(item, len(item.due))
        for token_id, q, score in rest:
            if not item.wants_more:
                break
            if item.drafts:
                row.cached.append(item.drafts[-1])
            item.add(token_id, q, score)
        item.num_reused = len(item.drafts)
        self.num_used += item.num_reused
        self._beyond[item.planned.row_id] = rest[item.num_reused :]

    def keep(self, batch: Sequence[Drafting], num_passes: int, *, may_run_ahead: bool) -> None:
        """A step is over, and its drafts are sent: go on with its rows.

        Args:
            batch: Its rows.
            num_passes: Forward passes that it took.
            may_run_ahead: Whether it is any use.
        """
        last, self._items = self._items, {}
        is_off = not may_run_ahead or self._limit == 0 or self._num_paused > 0
        self._num_paused = max(self._num_paused - 1, 0)
        if last:
            self._learn(max((len(item.drafts) for item in batch), default=0), num_passes)
        for item in batch:
            last.pop(item.planned.row_id, None)
            if is_off or not item.drafts or item.is_broken:
                self._rows.drop_ahead(item.row)
                continue
            item.stop = None  # it was the step's
            if item.row.ahead_block_ids is not None:  # else its KV is gone
                for token, q, score in self._beyond.get(item.planned.row_id, ()):
                    item.add(token, q, score)
            item.is_ahead = True
            self._items[item.planned.row_id] = item
        for item in last.values():
            self._rows.drop_ahead(item.row)
        self._going = [item for item in self._items.values() if self._has_room(item)]

    def _skip(self, item: Drafting, count: int) -> None:
        """Leave out the first of the due tokens, whose KV is there."""
        if count > 0:
            item.row.cached += item.due[:count]
            item.row.num_agreed = len(item.row.cached)
            item.due = item.due[count:]

    def _has_room(self, item: Drafting) -> bool:
        k, num_drafts = item.planned.num_draft_tokens, len(item.drafts)
        limit = k + 1 if self._limit is None else self._limit
        is_short = num_drafts < k + limit and item.planned.base_len + num_drafts < self._max_len
        return is_short and not item.is_broken

    def _learn(self, num_wanted: int, num_passes: int) -> None:
        """Learn from a step how many of its passes were saved."""
        if self._limit is not None or not num_wanted:
            return
        share = max(num_wanted - num_passes, 0) / num_wanted
        self._saved += _WEIGHT * (share - self._saved)
        if self._saved < _LEAST_SAVED:
            self._saved, self._num_paused = _FIRST_SAVED, _PAUSE_STEPS


def _drawn(item: Drafting) -> list[Drawn]:
    """All that is drawn of a row; scores are there for all or for none."""
    scores: Sequence[float | None] = item.scores or [None] * len(item.drafts)
    return list(zip(item.drafts, item.q, scores, strict=True))
