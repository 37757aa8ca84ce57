"""Learns how likely drafts of a score stand: one curve per temperature class and position. Pure.

Labels are counted in bins of the score, so memory does not grow with them. Every 256 labels, and
earlier at first, the curves are fitted anew. A position with few labels follows the curve of its
class, a class without any that of all.

Old labels fade slowly, because a curve needs many. When lately another share stood than the curves
said, the old ones are dropped: the workload is another one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minedraft.plans import MAX_DRAFT_TOKENS, Score
from minedraft.selection import NO_CURVES, NUM_CLASSES, Curves
from minedraft.services.coordinator.core.logistic import Count, Line, fit

if TYPE_CHECKING:
    from collections.abc import Sequence

REFIT_LABELS: Final = 256
"""Labels between two fits."""
NUM_BINS: Final = 17
"""Of scores; the last one has all that are clipped."""
MOST_SCORE: Final = {Score.MARGIN: 4.0, Score.SURPRISAL: 8.0}
"""Higher scores count as this one."""
SIGNS: Final = {Score.MARGIN: 1, Score.SURPRISAL: -1}
"""Of the slopes."""
_PRIORS: Final = {Score.MARGIN: Line(1.0, 0.0), Score.SURPRISAL: Line(-1.0, 1.0)}
_FIRST_FIT: Final = 32
_CLASS_PRIOR, _POSITION_PRIOR = 8.0, 16.0
"""Labels that the prior of a class counts for, and the curve of a class for its positions."""
_MEMORY: Final = 4096
"""Labels of a class that are remembered; older ones fade."""
_AFTER_SHIFT: Final = 16.0
"""Labels of a class that its old ones still count for when the workload is another one."""
_SHIFT, _SHIFT_SIGMAS = 0.05, 4.0
"""Least difference of the share that stood, and in its own deviations."""
_SHRINK: Final = 8.0
"""Labels that the acceptance of all positions counts for at each of them."""
_LEAST, _MOST = 0.005, 0.995
"""Of an acceptance."""
_NUM_CHECKS: Final = 10
_LEAST_LOGIT: Final = -700.0
"""math.exp overflows below it."""
_CHECK_MEMORY: Final = 8192
_MIN_CHECKED: Final = 256


@dataclass(slots=True)
class Cell:
    """Labels of one class and position, in bins of the score."""

    counts: list[float] = field(default_factory=lambda: [0.0] * NUM_BINS)
    """Labels up to the last fit; older ones faded."""
    kept: list[float] = field(default_factory=lambda: [0.0] * NUM_BINS)
    """Of them, those that stood."""
    new_counts: list[int] = field(default_factory=lambda: [0] * NUM_BINS)
    new_kept: list[int] = field(default_factory=lambda: [0] * NUM_BINS)
    slope: float = 0.0
    bias: float = 0.0


class Calibration:
    """See the module docstring.

    Args:
        score: What the scores are; not NONE.
        cells: Labels of an earlier run, by class and position.
    """

    def __init__(self, score: Score, cells: dict[tuple[int, int], Cell] | None = None) -> None:
        self.score = score
        self._cells = cells or {}
        self._most = MOST_SCORE[score]
        self._scale = (NUM_BINS - 1) / self._most
        self._num_new = self._next_fit = 0
        self._surprise = [0.0] * NUM_CLASSES
        self._variance = [0.0] * NUM_CLASSES
        """Since the last fit, by class: labels minus what was said, and the variance of that."""
        self._checks = [[0.0, 0.0, 0.0] for _ in range(_NUM_CHECKS)]
        """By probability that was said: labels, sum of what was said, those that stood."""
        self._common = _PRIORS[score]
        self._lines: list[Line] = []
        self._curves = NO_CURVES if score is Score.SURPRISAL else _flat(_PRIORS[score])
        self._rates: list[tuple[float, ...]] = [()] * NUM_CLASSES
        self._means: list[float | None] = [None] * NUM_CLASSES
        self._mean: float | None = None
        self.num_labels = 0
        """Learned from in this run."""
        self._fit()

    @property
    def curves(self) -> Curves:
        """Of the last fit."""
        return self._curves

    @property
    def cells(self) -> dict[tuple[int, int], Cell]:
        """Labels by class and position; those since the last fit are apart. Read only."""
        return self._cells

    def rates(self, group: int) -> tuple[float, ...]:
        """Probability of each position's draft, given those before it; none while unknown."""
        return self._rates[group]

    def mean(self, group: int | None = None) -> float | None:
        """Probability of a draft, given those before it, over all positions; None: unknown.

        Args:
            group: Temperature class; None: all of them.
        """
        return self._mean if group is None else self._means[group]

    @property
    def by_position(self) -> tuple[float, ...]:
        """Probability of each position's draft, given those before it, all classes together."""
        sums: dict[int, list[float]] = {}
        for (_, position), cell in self._cells.items():
            both = sums.setdefault(position, [0.0, 0.0])
            both[0] += sum(cell.counts) + sum(cell.new_counts)
            both[1] += sum(cell.kept) + sum(cell.new_kept)
        found = []
        for position in range(MAX_DRAFT_TOKENS):
            num, kept = sums.get(position, (0.0, 0.0))
            if not num:
                break
            found.append(kept / num)
        return tuple(found)

    @property
    def error(self) -> float | None:
        """Mean distance of what was said from what stood, 0..1; None: too few labels."""
        num = sum(check[0] for check in self._checks)
        if num < _MIN_CHECKED:
            return None
        return sum(abs(said - kept) for _, said, kept in self._checks) / num

    def observe(
        self,
        group: int,
        scores: Sequence[float],
        num_matched: int,
        labels: range,
        offset: float,
    ) -> tuple[float, float]:
        """Learn what became of drafts of a row.

        Args:
            group: Temperature class of the row.
            scores: Of its drafts; finite and >= 0, else 0.
            num_matched: Leading drafts that stood.
            labels: Positions that are judged now, within `scores`.
            offset: Of its request.

        Returns:
            Sum over the labels of what stood minus what was said, and its information.
        """
        surprise = variance = residual = information = 0.0
        exp = math.exp
        cells, checks, most, scale = self._cells, self._checks, self._most, self._scale
        is_checked = self._next_fit == REFIT_LABELS
        for position in labels:
            score = scores[position]
            if not 0.0 <= score <= most:
                score = most if score > most else 0.0
            cell = cells.get((group, position))
            if cell is None:
                cell = cells[group, position] = Cell()
                cell.slope, cell.bias = self._line(group, position)
            index = int(score * scale)
            stood = position < num_matched
            cell.new_counts[index] += 1
            cell.new_kept[index] += stood
            logit = cell.slope * score + cell.bias
            p = 1.0 / (1.0 + exp(-logit)) if logit > _LEAST_LOGIT else 0.0
            surprise += stood - p
            variance += p * (1.0 - p)
            if offset:
                logit += offset
                p = 1.0 / (1.0 + exp(-logit)) if logit > _LEAST_LOGIT else 0.0
            residual += stood - p
            information += p * (1.0 - p)
            if is_checked:
                check = checks[int(p * (_NUM_CHECKS - 1) + 0.5)]
                check[0] += 1.0
                check[1] += p
                check[2] += stood
        self._surprise[group] += surprise
        self._variance[group] += variance
        self._num_new += len(labels)
        self.num_labels += len(labels)
        if self._num_new >= self._next_fit:
            self._fit()
        return residual, information

    def settle(self) -> None:
        """Learn from the last labels too."""
        if self._num_new:
            self._fit()

    # -- fitting ----------------------------------------------------------------------------

    def _fit(self) -> None:
        groups: list[list[Cell]] = [[] for _ in range(NUM_CLASSES)]
        for (group, _), cell in self._cells.items():
            groups[group].append(cell)
        for group, cells in enumerate(groups):
            self._take_in(group, cells)
        self._next_fit = min(max(_FIRST_FIT, 2 * self._num_new), REFIT_LABELS)
        self._fade_checks()
        self._num_new = 0
        self._surprise = [0.0] * NUM_CLASSES
        self._variance = [0.0] * NUM_CLASSES
        if not self._cells:
            return
        self._fit_lines(groups)
        self._write_curves()
        self._write_rates()

    def _take_in(self, group: int, cells: Sequence[Cell]) -> None:
        """Add the new labels of a class to the old ones, which fade."""
        num_new = sum(sum(cell.new_counts) for cell in cells)
        if not num_new:
            return
        num_old = sum(sum(cell.counts) for cell in cells)
        surprise, deviation = abs(self._surprise[group]), math.sqrt(self._variance[group])
        keep = max(1.0 - num_new / _MEMORY, 0.0)
        if surprise > _SHIFT * num_new and surprise > _SHIFT_SIGMAS * deviation and num_old:
            keep = min(keep, _AFTER_SHIFT / num_old)
        for cell in cells:
            cell.counts = [a * keep + b for a, b in zip(cell.counts, cell.new_counts, strict=True)]
            cell.kept = [a * keep + b for a, b in zip(cell.kept, cell.new_kept, strict=True)]
            cell.new_counts, cell.new_kept = [0] * NUM_BINS, [0] * NUM_BINS

    def _fit_lines(self, groups: Sequence[Sequence[Cell]]) -> None:
        sign, scale = SIGNS[self.score], self._scale
        pools = [_pool(cells, scale) for cells in groups]
        known = [pool for pool in pools if pool]
        of_all = known[0] if len(known) == 1 else _pool(list(self._cells.values()), scale)
        common = fit(of_all, _PRIORS[self.score], _CLASS_PRIOR, sign=sign, begin=self._common)
        self._common = common
        lines = self._lines or [common] * NUM_CLASSES
        self._lines = [
            fit(pool, common, _CLASS_PRIOR, sign=sign, begin=line) if pool else common
            for pool, line in zip(pools, lines, strict=True)
        ]
        for cells, line in zip(groups, self._lines, strict=True):
            for cell in cells:
                begin = Line(cell.slope, cell.bias)
                counts = _pool([cell], scale)
                found = fit(counts, line, _POSITION_PRIOR, sign=sign, begin=begin)
                cell.slope, cell.bias = found

    def _fade_checks(self) -> None:
        keep = max(1.0 - self._num_new / _CHECK_MEMORY, 0.0)
        for check in self._checks:
            check[:] = [each * keep for each in check]

    def _line(self, group: int, position: int) -> Line:
        cell = self._cells.get((group, position))
        if cell is not None:
            return Line(cell.slope, cell.bias)
        return self._lines[group] if self._lines else _PRIORS[self.score]

    def _write_curves(self) -> None:
        num_positions = 1 + max(position for _, position in self._cells)
        lines = [
            self._line(group, position)
            for group in range(NUM_CLASSES)
            for position in range(num_positions)
        ]
        self._curves = Curves(
            tuple(line.slope for line in lines), tuple(line.bias for line in lines)
        )

    def _write_rates(self) -> None:
        all_num = all_kept = 0.0
        for group in range(NUM_CLASSES):
            sums = {
                position: (sum(cell.counts), sum(cell.kept))
                for (of_group, position), cell in self._cells.items()
                if of_group == group
            }
            total = sum(num for num, _ in sums.values())
            if not total:
                continue
            total_kept = sum(kept for _, kept in sums.values())
            all_num, all_kept = all_num + total, all_kept + total_kept
            mean = self._means[group] = _bounded(total_kept / total)
            self._rates[group] = tuple(
                _bounded((kept + _SHRINK * mean) / (num + _SHRINK))
                for num, kept in (sums.get(at, (0.0, 0.0)) for at in range(max(sums) + 1))
            )
        if all_num:
            self._mean = _bounded(all_kept / all_num)


def _pool(cells: Sequence[Cell], scale: float) -> list[Count]:
    """Labels of some cells together; bins without any are left out."""
    if not cells:
        return []
    counts = [sum(column) for column in zip(*(cell.counts for cell in cells), strict=True)]
    kept = [sum(column) for column in zip(*(cell.kept for cell in cells), strict=True)]
    return [
        Count((index + 0.5 if index < NUM_BINS - 1 else index) / scale, num, kept[index])
        for index, num in enumerate(counts)
        if num > 0
    ]


def _flat(line: Line) -> Curves:
    return Curves((line.slope,) * NUM_CLASSES, (line.bias,) * NUM_CLASSES)


def _bounded(rate: float) -> float:
    return min(max(rate, _LEAST), _MOST)
