"""Drafts a row from its own tokens where no drafter's drafts come: what followed the same n-gram.

The longest match of the last 4, 3 or 2 tokens counts, of equal ones the latest. Which drafts are
made never changes an output. Pure: no model, no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Tokens = Callable[[int, int], list[int]]
    """Committed tokens of positions [start, end)."""

LENGTHS: Final = (4, 3, 2)
"""Of n-grams, the longest first."""
MAX_EMPTY_STEPS: Final = 40
"""Steps in a row of whose drafts none stands; then a row makes none for a while."""
REST_STEPS: Final = 100
"""Steps without drafts until it tries again."""
MAX_INDEXED_PER_STEP: Final = 1024
"""Tokens that one row takes into its index in a step: a long prompt takes several."""


class NgramDrafts:
    """The n-grams of one row, and whether they help.

    Drafts are one token long at first, twice as long after each step in which all stand, and half
    as long after one in which none does: text that does not repeat pays for one position.
    """

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        """By hash of an n-gram: the position after its latest occurrence."""
        self._num_indexed = 0
        """Positions whose n-grams are in it: those that end there, and a token follows."""
        self._width = 1
        self._num_empty = self._num_resting = 0

    def propose(self, tokens: Tokens, length: int, most: int) -> list[int]:
        """Draft the next tokens of a row.

        Args:
            tokens: Of the row.
            length: Committed tokens.
            most: Most drafts.

        Returns:
            Drafts; none if nothing matches, or the row rests.
        """
        self._index(tokens, length)
        if self._num_resting:
            self._num_resting -= 1
            return []
        start = self._find(tokens, length)
        count = min(most, self._width)
        if start is None or count < 1:
            return []
        drafts = tokens(start, min(start + count, length))
        while len(drafts) < count:  # the match runs into the drafts: they repeat
            drafts.append(drafts[start + len(drafts) - length])
        return drafts

    def observe(self, num_drafts: int, num_accepted: int) -> None:
        """Learn what became of drafts, at least one."""
        if num_accepted:
            self._num_empty = 0
            if num_accepted == num_drafts:
                self._width = max(self._width, 2 * num_drafts)
            return
        self._width = max(num_drafts // 2, 1)
        self._num_empty += 1
        if self._num_empty >= MAX_EMPTY_STEPS:
            self._num_empty, self._num_resting = 0, REST_STEPS

    def _index(self, tokens: Tokens, length: int) -> None:
        """Take in n-grams that a token follows by now."""
        first = self._num_indexed = min(self._num_indexed, length)
        end = min(length, first + MAX_INDEXED_PER_STEP)
        start = max(first - LENGTHS[0], 0)
        window = tokens(start, end)
        for position in range(first, end):
            at = position - start
            for size in LENGTHS:
                if at >= size:
                    self._ends[hash(tuple(window[at - size : at]))] = position
        self._num_indexed = end

    def _find(self, tokens: Tokens, length: int) -> int | None:
        """The position after the latest occurrence of the longest tail; None: there is none."""
        tail = tokens(max(length - LENGTHS[0], 0), length)
        for size in LENGTHS:
            wanted = tail[-size:]
            end = self._ends.get(hash(tuple(wanted)))
            # A hash is not a proof, and the row may have been cut and gone on otherwise.
            if (
                len(wanted) == size
                and end is not None
                and end < length
                and tokens(end - size, end) == wanted
            ):
                return end
        return None
