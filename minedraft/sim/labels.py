"""Which drafts of a simulated row stood, told as a real drafter tells it. Pure.

The oldest drafts of which the committed tokens tell something new come first, those of one step per
step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from minedraft.plans import MAX_DRAFT_TOKENS

_MAX_STEPS: Final = 2 * MAX_DRAFT_TOKENS


class Label(NamedTuple):
    """See `DraftRowResult`."""

    judged_len: int = 0
    num_matched: int = 0
    num_resolved: int = 0


@dataclass(slots=True)
class _Drafts:
    base_len: int
    num_drafts: int
    num_standing: int
    num_told: int = 0


class Labels:
    """Drafts of one row whose outcome has not been told, oldest first."""

    def __init__(self) -> None:
        self._drafts: deque[_Drafts] = deque(maxlen=_MAX_STEPS)

    def add(self, base_len: int, num_drafts: int, num_standing: int) -> None:
        """Drafts were made; made again, they take the place of the first."""
        if self._drafts and self._drafts[-1].base_len == base_len:
            self._drafts.pop()
        self._drafts.append(_Drafts(base_len, num_drafts, num_standing))

    def tell(self, num_tokens: int) -> Label:
        """Say what that many committed tokens tell of the oldest drafts."""
        while self._drafts:
            oldest = self._drafts[0]
            known = min(num_tokens - oldest.base_len, oldest.num_drafts)
            matched = min(oldest.num_standing, known)
            resolved = min(matched + 1, known)
            is_over = matched < known or known == oldest.num_drafts
            if is_over:
                self._drafts.popleft()
            if resolved > oldest.num_told:
                oldest.num_told = resolved
                return Label(oldest.base_len, matched, resolved)
            if not is_over:
                break
        return Label()
