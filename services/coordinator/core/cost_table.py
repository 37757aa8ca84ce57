"""Learns what a forward pass costs by its tokens: a monotone table. Pure.

Sizes share a bin where they differ by less than an eighth. A bin keeps moving means. Slopes, pooled
over all bins, tell what more context or more rows of the same size cost. A pass of more tokens
never costs less: where the means say so, neighbours are pooled (isotonic regression).

A stalled step must not decide anything for long. So one observation moves a mean by little, a first
one is bounded by the next larger size, and a second one that is much lower replaces it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_SIZE: Final = 2**20
"""Tokens; a larger pass counts as this one."""
MAX_COUNT: Final = 32
"""Observations that a bin counts; older ones fade."""
_SETTLED, _MOST_MOVES = 16, 4
"""From how many observations of a size the curve is fitted to every fourth of them only."""
_EXACT = 16
"""Sizes below this have a bin each; above, eight bins per power of two."""
_WEIGHT = 0.1
"""Least weight of an observation in a mean."""
_MOST_UP, _MOST_DOWN = math.log(1.25), math.log(0.6)
"""Most that one observation may differ from the mean that it moves: a stall makes steps longer."""
_MUCH_LOWER = math.log(0.7)
_MOST_FIRST = 1.5
"""Times the next larger size: most that a first observation counts for."""
_SLOPE_DECAY = 0.99
_MIN_SLOPE_COUNT = 8
_MOST_SLOPED = 0.9
"""Share of a mean that slopes may explain."""


@dataclass(slots=True)
class Bin:
    """Moving means over passes of about one size."""

    size: float
    rows: float
    context: float
    ns: float
    count: int = 1
    is_rough: bool = False
    """Whether only passes that sample at few of their tokens were seen: they cost less."""


@dataclass(slots=True)
class Slope:
    """ns per unit of one property, from differences within bins; 0 while unknown."""

    sum_xx: float = 0.0
    sum_xy: float = 0.0
    count: int = 0

    @property
    def ns(self) -> float:
        """Cost of one more unit, >= 0."""
        known = self.count >= _MIN_SLOPE_COUNT and self.sum_xx > 0
        return max(self.sum_xy / self.sum_xx, 0.0) if known else 0.0

    def observe(self, difference: float, error_ns: float) -> None:
        """Learn that a pass with so much more of it took so much longer than was expected."""
        if abs(difference) < 0.5:  # noqa: PLR2004 units are whole ones
            return
        known = self.ns
        self.sum_xx = self.sum_xx * _SLOPE_DECAY + difference * difference
        self.sum_xy = self.sum_xy * _SLOPE_DECAY + difference * (error_ns + known * difference)
        self.count = min(self.count + 1, MAX_COUNT)


class CostTable:
    """See the module docstring."""

    def __init__(
        self,
        bins: Iterable[Bin] = (),
        row_slope: Slope | None = None,
        context_slope: Slope | None = None,
    ) -> None:
        self._bins = {bin_of(each.size): each for each in bins}
        self.row_slope = row_slope or Slope()
        self.context_slope = context_slope or Slope()
        self._curve: tuple[list[float], list[float], float, float] | None = None
        self._num_moves = 0
        """Observations since the curve was fitted."""

    @property
    def bins(self) -> list[Bin]:
        """All bins, smallest size first. Read only."""
        return [self._bins[key] for key in sorted(self._bins)]

    def knows(self, size: int) -> bool:
        """Whether passes of about this size were seen that sampled at their tokens."""
        known = self._bins.get(bin_of(size))
        return known is not None and not known.is_rough

    def scale(self, factor: float) -> None:
        """Multiply every cost."""
        for each in self._bins.values():
            each.ns *= factor
        for slope in (self.row_slope, self.context_slope):
            slope.sum_xy *= factor
        self._curve = None

    def observe(
        self, size: int, rows: int, context: int, ns: float, *, is_rough: bool = False
    ) -> None:
        """Learn from a pass.

        Args:
            size: Its tokens.
            rows: Its rows.
            context: Committed tokens of all its rows together.
            ns: Its duration.
            is_rough: It sampled at few of its tokens, as a prefill does. It counts only for sizes
                of which nothing else is known.
        """
        if size <= 0 or ns <= 0:
            return
        key = bin_of(size)
        known = self._bins.get(key)
        if known is not None and is_rough and not known.is_rough:
            return
        if known is None or (known.is_rough and not is_rough):
            first_ns = min(ns, self._most_first(key, rows, context))
            self._bins[key] = Bin(size, rows, context, first_ns, is_rough=is_rough)
        else:
            self._move(known, size, rows, context, ns)
            self._num_moves += 1
            if known.count >= _SETTLED and self._num_moves < _MOST_MOVES:
                return  # one of many: the curve is as good as before
        self._curve = None

    def estimate(self, size: int, rows: int, context: int) -> float | None:
        """Cost of a pass in ns, or None while nothing is known.

        Never less for more tokens, rows or context. Below the smallest size that was seen it stays,
        beyond the largest it goes on as straight as from the smallest.
        """
        sizes, costs, row_ns, context_ns = self._fitted()
        if not sizes:
            return None
        return _along(sizes, costs, min(size, MAX_SIZE)) + row_ns * rows + context_ns * context

    def _move(self, known: Bin, size: int, rows: int, context: int, ns: float) -> None:
        sizes, costs, row_ns, context_ns = self._fitted()
        expected = (
            known.ns
            + _along(sizes, costs, size)
            - _along(sizes, costs, known.size)
            + row_ns * (rows - known.rows)
            + context_ns * (context - known.context)
        )
        error = math.log(ns / max(expected, 1.0))
        weight = max(1 / (known.count + 1), _WEIGHT)
        if known.count == 1 and error < _MUCH_LOWER:
            weight = 1.0  # the first one was a stall
        else:
            error = min(max(error, _MOST_DOWN), _MOST_UP)
            error_ns = expected * math.expm1(error)
            self.row_slope.observe(rows - known.rows, error_ns)
            self.context_slope.observe(context - known.context, error_ns)
        # The means move towards the observation together, along what is known of their relation.
        known.ns = max(
            known.ns + weight * (expected - known.ns) + expected * math.expm1(weight * error), 1.0
        )
        known.size += weight * (size - known.size)
        known.rows += weight * (rows - known.rows)
        known.context += weight * (context - known.context)
        known.count = min(known.count + 1, MAX_COUNT)

    def _most_first(self, key: int, rows: int, context: int) -> float:
        """Bound a first observation by what the next larger size costs."""
        _, costs, row_ns, context_ns = self._fitted()
        for each, ns in zip(self.bins, costs, strict=True):
            if each.size > key and not each.is_rough and bin_of(each.size) != key:
                return _MOST_FIRST * (ns + row_ns * rows + context_ns * context)
        return math.inf

    def _fitted(self) -> tuple[list[float], list[float], float, float]:
        """Sizes, their costs without rows and context, ns per row, ns per token of context."""
        if self._curve is None:
            self._num_moves = 0
            self._curve = _fit(self.bins, self.row_slope.ns, self.context_slope.ns)
        return self._curve


def bin_of(size: float) -> int:
    """The smallest size of the bin of a size."""
    whole = min(int(size), MAX_SIZE)
    if whole < _EXACT:
        return whole
    shift = whole.bit_length() - 4
    return whole >> shift << shift


def _fit(
    bins: Sequence[Bin], row_ns: float, context_ns: float
) -> tuple[list[float], list[float], float, float]:
    """Fit a monotone curve through the means, after what rows and context explain."""
    sloped = max(
        ((row_ns * each.rows + context_ns * each.context) / each.ns for each in bins), default=0.0
    )
    if sloped > _MOST_SLOPED:
        row_ns, context_ns = row_ns * _MOST_SLOPED / sloped, context_ns * _MOST_SLOPED / sloped
    pools: list[tuple[float, int, int]] = []
    """Mean of the logarithm, weight, number of bins: means in it are of the noise's kind, and no
    stall outweighs many."""
    for each in bins:
        mean = math.log(max(each.ns - row_ns * each.rows - context_ns * each.context, 1.0))
        weight, count = each.count, 1
        while pools and pools[-1][0] >= mean:
            last_mean, last_weight, last_count = pools.pop()
            mean = (mean * weight + last_mean * last_weight) / (weight + last_weight)
            weight, count = weight + last_weight, count + last_count
        pools.append((mean, weight, count))
    costs = [math.exp(mean) for mean, _, count in pools for _ in range(count)]
    return [each.size for each in bins], costs, row_ns, context_ns


def _along(sizes: Sequence[float], costs: Sequence[float], size: float) -> float:
    """Follow a monotone curve through at least one point."""
    index = bisect_left(sizes, size)
    if index == 0:
        return costs[0]
    if index == len(sizes):
        rise = (costs[-1] - costs[0]) / (sizes[-1] - sizes[0]) if index > 1 else costs[0] / sizes[0]
        return costs[-1] + rise * (size - sizes[-1])
    left, right = sizes[index - 1], sizes[index]
    return costs[index - 1] + (costs[index] - costs[index - 1]) * (size - left) / (right - left)
