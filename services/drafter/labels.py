"""Which drafts of a row turned out right: compares them with what was committed later. Pure.

Whether a draft was verified has no say in it. Under coupled acceptance the output does not depend
on the drafts, so a draft that was cut off before it was verified is judged as well, a step or more
later, when the committed tokens have reached it.

Drafts of one step are judged in order up to the first that differs: what follows that one was made
on a token that does not stand. The oldest drafts go first, one step's per step; those after them
wait until they are settled. What is known of them is counted from their beginning each time. So
each draft has one outcome, it is told once it is known, and whether it is told does not depend on
it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from minedraft.plans import MAX_DRAFT_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_PENDING: Final = 2 * MAX_DRAFT_TOKENS
"""Steps whose drafts one row keeps for their outcome. The drafts of a step wait for at most
`MAX_DRAFT_TOKENS` committed tokens, and every step commits one."""


class Outcome(NamedTuple):
    """What is known of the drafts of one step; see `plans.DraftRowResult`."""

    judged_len: int = 0
    num_matched: int = 0
    num_resolved: int = 0


@dataclass(slots=True)
class _Drafts:
    base_len: int
    token_ids: tuple[int, ...]
    num_told: int = 0


class Labels:
    """Drafts of one row that are not judged yet, oldest first."""

    def __init__(self) -> None:
        self._pending: deque[_Drafts] = deque(maxlen=MAX_PENDING)

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, base_len: int, token_ids: Sequence[int]) -> None:
        """Keep the drafts of a step, at least one; made again, they take the place of the first."""
        if self._pending and self._pending[-1].base_len == base_len:
            self._pending.pop()
        self._pending.append(_Drafts(base_len, tuple(token_ids)))

    def clear(self) -> None:
        """Forget all: the committed tokens that they were made on are others now."""
        self._pending.clear()

    def judge(self, token: Callable[[int], int], num_tokens: int) -> Outcome:
        """Compare with the committed tokens.

        Args:
            token: Committed token at a position.
            num_tokens: Committed tokens.

        Returns:
            News of the oldest drafts that there are news of; zeros if there are none.
        """
        if not self._pending:
            return Outcome()
        oldest = self._pending[0]
        known = min(len(oldest.token_ids), num_tokens - oldest.base_len)
        matched = 0
        while matched < known and token(oldest.base_len + matched) == oldest.token_ids[matched]:
            matched += 1
        resolved = min(matched + 1, known)
        if resolved == oldest.num_told:
            return Outcome()
        oldest.num_told = resolved
        if matched < known or resolved == len(oldest.token_ids):
            self._pending.popleft()
        return Outcome(oldest.base_len, matched, resolved)
