"""Which drafts of a step are verified: a budget for all rows, best survival first. Pure.

The verifier and the simulator share it. Scores come from a drafter, so nothing believes them: they
move a bounded budget between rows, and no output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

NUM_CLASSES: Final = 3
MAX_SLOPE: Final = 1e3
"""Magnitude of a slope, a bias or an offset."""
_LOW_TEMPERATURE: Final = 0.5
_MAX_LOGIT: Final = 700.0
"""math.exp overflows above it."""


def temperature_class(temperature: float) -> int:
    """Class of sequences whose acceptance one curve describes: 0 greedy, 1 to T = 0.5, 2 above."""
    if temperature <= 0:
        return 0
    return 1 if temperature <= _LOW_TEMPERATURE else 2


@dataclass(frozen=True, slots=True)
class Curves:
    """Probability that a draft stands, given that those before it do: sigma(slope * score + bias).

    One pair per temperature class and position, class by class; positions past the last one use it.
    """

    slopes: tuple[float, ...] = ()
    """[NUM_CLASSES * positions]; empty: `NO_CURVES`."""
    biases: tuple[float, ...] = ()
    """[NUM_CLASSES * positions], as many as slopes."""

    def factor(self, group: int, position: int, score: float, offset: float = 0.0) -> float:
        """Probability of one draft.

        Args:
            group: Temperature class.
            position: 0 for the first draft.
            score: As the drafter said.
            offset: Of the row, in logits.

        Returns:
            0..1.
        """
        if not self.slopes:
            return math.exp(-score)
        num_positions = len(self.slopes) // NUM_CLASSES
        index = group * num_positions + min(position, num_positions - 1)
        return _sigmoid(self.slopes[index] * score + self.biases[index] + offset)


NO_CURVES: Final = Curves()
"""Scores are surprisals: a draft stands with the probability that it was drawn with."""


@dataclass(frozen=True, slots=True)
class Selection:
    """How many drafts of a step are verified, and by what they are ranked."""

    budget: int
    """Most drafts, all rows together; >= 0."""
    floor: int = 0
    """Of each row, so many first drafts are verified whatever their rank, within the budget."""
    curves: Curves = NO_CURVES
    offsets: tuple[float, ...] = ()
    """In logits, one per row of the plan, in its order; empty: 0."""


class Scored(NamedTuple):
    """The drafts of one row of a step."""

    row: int
    """Its index in the plan: its offset, and its rank among equals."""
    group: int
    """Temperature class."""
    scores: Sequence[float]
    """One per draft."""


def select(rows: Sequence[Scored], selection: Selection) -> list[int]:
    """Choose prefixes of the rows' drafts.

    Best survival first, of equal ones by row, then by position. Survival never rises along a row,
    so what is chosen of a row is a prefix.

    Returns:
        For each of `rows`, how many of its drafts are verified.
    """
    floors = [min(selection.floor, len(row.scores)) for row in rows]
    budget = selection.budget
    chosen = [0] * len(rows)
    ranked = []
    for index, row in enumerate(rows):
        offset = selection.offsets[row.row] if selection.offsets else 0.0
        survival = 1.0
        for position, score in enumerate(row.scores):
            survival *= selection.curves.factor(row.group, position, score, offset)
            is_floor = position < floors[index]
            # Floors come first, a position of all rows before the next one.
            order = (0, float(position)) if is_floor else (1, -survival)
            ranked.append((order, row.row, position, index))
    ranked.sort()
    for _, _, _, index in ranked[:budget]:
        chosen[index] += 1
    return chosen


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(min(-logit, _MAX_LOGIT)))
