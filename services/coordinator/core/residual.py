"""Follows how much dearer steps are at present than the table of a leg says. Pure.

There is one EWMA for steps alone and one for steps during which the other worker was at work: on
one machine the two share memory and power. A step that was partly overlapped counts for both by its
share. First each of them learns for itself. Once it knows its kind of step, the other one takes
over most of what surprises it, because most of what makes a machine slower does so to both.

An error moves them only if the median of the last three of its kind says so too: a single stalled
step moves nothing.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import Final

MOST_FACTOR: Final = 100.0
MAX_COUNT: Final = 32
"""Steps that an EWMA counts; older ones fade."""
_WEIGHT = 0.15
"""Least weight of a step."""
_SHARED = 0.75
"""Part of a surprise that holds for the other kind of step too."""
_FAMILIAR = 8
"""Steps after which half of that part is believed."""
_MOST_ERROR = math.log(2)
_MOST_LEVEL = math.log(MOST_FACTOR)
_NUM_ERRORS = 3


class Residual:
    """See the module docstring.

    Args:
        overlap: Cost of an overlapped step over one alone, 1 / MOST_FACTOR..MOST_FACTOR.
        count: Overlapped steps that this is known from, 0..MAX_COUNT.
    """

    def __init__(self, overlap: float = 1.0, count: float = 0.0) -> None:
        self._alone = 0.0
        self._overlapped = math.log(overlap)
        self._num_alone = self._num_overlapped = count
        self._errors: tuple[deque[float], deque[float]] = (
            deque(maxlen=_NUM_ERRORS),
            deque(maxlen=_NUM_ERRORS),
        )
        """Of steps alone, and of overlapped ones."""

    @property
    def overlap(self) -> float:
        """Cost of an overlapped step over one alone."""
        return math.exp(_bounded(self._overlapped - self._alone))

    @property
    def count(self) -> float:
        """Overlapped steps that were seen; partly overlapped ones count by their share."""
        return self._num_overlapped

    def factor(self, overlapped: float) -> float:
        """Cost over the table's, for a step of which that share is overlapped, 0..1."""
        return math.exp(self._alone + overlapped * (self._overlapped - self._alone))

    def observe(self, ratio: float, overlapped: float) -> None:
        """Learn from a step.

        Args:
            ratio: Its duration over the table's; > 0.
            overlapped: Share of it during which the other worker was at work, 0..1.
        """
        errors = self._errors[overlapped > 0.5]  # noqa: PLR2004 most of it
        errors.append(math.log(ratio / self.factor(overlapped)))
        error = min(max(_typical(errors), -_MOST_ERROR), _MOST_ERROR)
        of_alone = (1 - overlapped) * _weight(self._num_alone)
        of_overlapped = overlapped * _weight(self._num_overlapped)
        of_alone += overlapped * _WEIGHT * _shared(self._num_overlapped)
        of_overlapped += (1 - overlapped) * _WEIGHT * _shared(self._num_alone)
        self._alone = _bounded(self._alone + of_alone * error)
        self._overlapped = _bounded(self._overlapped + of_overlapped * error)
        self._num_alone = min(self._num_alone + 1 - overlapped, MAX_COUNT)
        self._num_overlapped = min(self._num_overlapped + overlapped, MAX_COUNT)

    def rest(self) -> float:
        """Give away the factor for steps alone, which becomes 1, to the table."""
        factor = math.exp(self._alone)
        self._overlapped -= self._alone
        self._alone = 0.0
        return factor


def _typical(errors: deque[float]) -> float:
    """The median; of fewer than three the smallest."""
    return median(errors) if len(errors) == _NUM_ERRORS else min(errors, key=abs)


def _weight(count: float) -> float:
    return max(1 / (count + 1), _WEIGHT)


def _shared(count: float) -> float:
    return _SHARED * count / (count + _FAMILIAR)


def _bounded(level: float) -> float:
    return min(max(level, -_MOST_LEVEL), _MOST_LEVEL)
