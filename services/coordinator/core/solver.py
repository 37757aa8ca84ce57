"""Finds what to draft and verify in a step for the most tokens per second. Pure.

The rate of a step is what it is expected to commit, per time until the next one: one token per row
and the survivals of the drafts that are verified, over the legs as `shapes.step_ns` adds them up.
All drafts are sorted once by survival; along that order the best rate is looked for at every
measured size, because costs are no smooth curve. The best rate is the price of time: a draft that
was left out commits less than its time is worth (Dinkelbach's fixed point).

Then rows draft on while that costs nothing: while the draft leg stays beneath the verify leg that
hides it, and a draft has some chance to be verified once its score is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from minedraft.services.coordinator.core.cost_table import bin_of
from minedraft.services.coordinator.core.shapes import step_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEAST_SURVIVAL: Final = 0.02
"""A draft that is less likely is never worth its place."""
SPARE: Final = 0.6
"""Drafts over the budget are made while their survival is this share of the last one in it."""
ROOM: Final = 1.2
"""What a draft leg counts for that another batch's verify leg hides: where both are about as long,
each waits for the other in turn, because no two steps are alike."""
NEARLY: Final = 0.99
"""Of the best rate: a budget that is near the best one stays if it gives this."""
_CATCH_UP: Final = 2
"""Tokens that a drafter feeds per row before it drafts: the last one, after a bonus one more."""


class LegCosts(Protocol):
    """Durations of both legs in ns; None: unknown. See `Costs`."""

    def verify_ns(
        self, num_tokens: int, num_rows: int, context: int, *, overlapped: float
    ) -> float | None:
        """Duration of a verify step."""

    def draft_ns(
        self,
        rows_per_depth: Sequence[int],
        num_catch_up_tokens: int,
        context: int,
        *,
        overlapped: float,
        source: int = 0,
    ) -> float | None:
        """Duration of a draft step of a source."""


@dataclass(frozen=True, slots=True)
class Legs:
    """What a step of a batch costs, by what is drafted and verified."""

    costs: LegCosts
    source: int
    num_rows: int
    context: int
    """Committed tokens of all rows together."""
    num_batches: int = 1
    """That rotate."""
    num_drafters: int = 1

    def ns(self, num_drafts: int, rows_per_depth: Sequence[int]) -> tuple[float, float] | None:
        """Return what verify and draft leg take; None: unknown.

        Args:
            num_drafts: Drafts that are verified.
            rows_per_depth: Rows that draft a first token, a second one, and so on.
        """
        rows, context, costs = self.num_rows, self.context, self.costs
        tokens = rows + num_drafts
        verify = costs.verify_ns(tokens, rows, context, overlapped=0.0)
        if not rows_per_depth or not rows_per_depth[0]:
            return None if verify is None else (verify, 0.0)
        num_fed = _CATCH_UP * rows_per_depth[0]
        draft = costs.draft_ns(rows_per_depth, num_fed, context, overlapped=0.0, source=self.source)
        if verify is None or draft is None:
            return None
        if self.num_batches > 1:
            # Each leg runs beside the other one for as long as that one takes.
            in_verify, in_draft = min(draft / verify, 1.0), min(verify / draft, 1.0)
            verify = costs.verify_ns(tokens, rows, context, overlapped=in_verify) or verify
            draft = (
                costs.draft_ns(
                    rows_per_depth, num_fed, context, overlapped=in_draft, source=self.source
                )
                or draft
            )
        return verify, draft

    def step_ns(self, num_drafts: int, rows_per_depth: Sequence[int]) -> float | None:
        """Return the time from one step to the next, of any batch; None: unknown."""
        legs = self.ns(num_drafts, rows_per_depth)
        if legs is None:
            return None
        verify, draft = legs
        room = ROOM if self.num_batches > 1 else 1.0
        return step_ns(self.num_batches, self.num_drafters, verify, draft * room)


class Solution(NamedTuple):
    """What to do in a step."""

    lengths: list[int]
    """Drafts of each row."""
    budget: int
    """Drafts that are verified, all rows together."""
    price: float
    """Tokens per ns that are expected of one batch after another."""
    threshold: float
    """Survival of the last draft in the budget; 1 if there is none."""
    least: float
    """Survival of the last draft that is made; 1 if there is none."""
    slowest_ns: float
    """Time per token that is expected of the slowest row, if there is a bound on it."""


@dataclass(slots=True)
class _Point:
    """A place in the order: so many drafts are verified."""

    num: int
    rate: float
    slowest_ns: float
    """Time per token of the slowest row."""


def solve(
    survivals: Sequence[Sequence[float]],
    legs: Legs,
    *,
    last_budget: int | None = None,
    slo_ns: float = math.inf,
    drafted: Sequence[int] | None = None,
) -> Solution | None:
    """Choose budget and lengths of a step.

    Args:
        survivals: For each row, the probability that its first draft stands, that its first two
            stand, and so on: as many as it may draft.
        legs: Costs.
        last_budget: Of the last step; it stays if the best one differs by a row's drafts or less,
            and it is nearly as fast.
        slo_ns: Longest time per token of the slowest row. If none keeps it: the least there is.
        drafted: Rows per depth that draft in any case; None: those whose drafts are verified, and
            what else costs nothing.

    Returns:
        None while a cost is unknown.
    """
    order = ranked(survivals)
    walk = _Walk(survivals, legs, drafted, has_slo=math.isfinite(slo_ns))
    points = []
    for num in [0, *_sizes(len(order), legs.num_rows, last_budget)]:
        walk.advance(order, num)
        point = walk.point()
        if point is None:
            return None
        points.append(point)
    best = _best(points, slo_ns, last_budget, max(len(order) // max(legs.num_rows, 1), 1))
    budget = best.num
    lengths = take(order[:budget], len(survivals))
    threshold = -order[budget - 1][0] if budget else 1.0
    least = threshold
    if drafted is None and budget and legs.num_batches > 1:
        least = _draft_on(lengths, order[budget:], legs, budget, threshold)
    return Solution(lengths, budget, best.rate, threshold, least, best.slowest_ns)


def solve_depth(
    survivals: Sequence[Sequence[float]],
    legs: Legs,
    depths: Iterable[int],
    *,
    last_budget: int | None = None,
    slo_ns: float = math.inf,
) -> tuple[Solution, int] | None:
    """Choose how deep rows draft at the most, too: each further pass of a drafter has its price.

    Along the order of survivals alone, a few rows that are nearly always right would have a pass
    each made for them before the first drafts of the others are looked at.

    Args:
        survivals: As of `solve`.
        legs: Costs.
        depths: To choose from, each >= 1.
        last_budget: As of `solve`.
        slo_ns: As of `solve`.

    Returns:
        The best solution and its depth; None while a cost is unknown.
    """
    best: tuple[Solution, int] | None = None
    for depth in depths:
        cut = [row[:depth] for row in survivals]
        found = solve(cut, legs, last_budget=last_budget, slo_ns=slo_ns)
        if found is None:
            return None
        if best is None or _is_better(found, best[0], slo_ns):
            best = found, depth
    if best is None or not best[0].budget or legs.num_batches == 1:
        return best
    found, depth = best
    lengths = [*found.lengths]
    rest = [draft for draft in ranked(survivals) if draft[2] >= lengths[draft[1]]]
    least = min(_draft_on(lengths, rest, legs, found.budget, found.threshold), found.least)
    return found._replace(lengths=lengths, least=least), depth


def _is_better(found: Solution, best: Solution, slo_ns: float) -> bool:
    """Whether a solution keeps the SLO where the other does not, or is faster if both are alike."""
    keeps, kept = found.slowest_ns <= slo_ns, best.slowest_ns <= slo_ns
    if keeps != kept:
        return keeps
    return found.price > best.price if keeps else found.slowest_ns < best.slowest_ns


def ranked(survivals: Sequence[Sequence[float]]) -> list[tuple[float, int, int]]:
    """Order drafts by survival, of equal ones by row and position: (-survival, row, position).

    A survival that is none, or over the one before it, counts as that one.
    """
    order = []
    for row, of_row in enumerate(survivals):
        last = 1.0
        for position, survival in enumerate(of_row):
            if survival < last:
                last = survival
            elif survival != survival:  # noqa: PLR0124 a NaN
                break
            if last < LEAST_SURVIVAL:
                break
            order.append((-last, row, position))
    order.sort()
    return order


def take(order: Iterable[tuple[float, int, int]], num_rows: int) -> list[int]:
    """Count what is taken of each row; along `ranked`, that is a prefix of its drafts."""
    lengths = [0] * num_rows
    for _, row, _ in order:
        lengths[row] += 1
    return lengths


def best_k(survival: Sequence[float], most: Sequence[int], legs: Legs) -> int | None:
    """Choose one draft length for all rows; the fastest one is then that of the least time, too.

    Args:
        survival: Probability that the first draft of any row stands, the first two stand, ...
        most: Most drafts of each row.
        legs: Costs.

    Returns:
        None while a cost is unknown.
    """
    value, num = float(len(most)), 0
    depths: list[int] = []
    best, best_rate = 0, 0.0
    for k in range(min(len(survival), max(most, default=0)) + 1):
        if k:
            depths.append(sum(each >= k for each in most))
            value += depths[-1] * survival[k - 1]
            num += depths[-1]
        step = legs.step_ns(num, depths)
        if step is None:
            return None
        rate = value / max(step, 1.0)
        if rate > best_rate:
            best, best_rate = k, rate
    return best


class _Walk:
    """Goes along the order, and knows what was passed."""

    def __init__(
        self,
        survivals: Sequence[Sequence[float]],
        legs: Legs,
        drafted: Sequence[int] | None,
        *,
        has_slo: bool,
    ) -> None:
        self._legs = legs
        self._drafted = drafted
        self._depths: list[int] = [0] * max(map(len, survivals), default=0)
        self._num, self._value = 0, float(legs.num_rows)
        self._per_row = [1.0] * len(survivals) if has_slo else None

    def advance(self, order: Sequence[tuple[float, int, int]], num: int) -> None:
        """Go on until `num` drafts are passed."""
        for minus, row, position in order[self._num : num]:
            self._value -= minus
            self._depths[position] += 1
            if self._per_row is not None:
                self._per_row[row] -= minus
        self._num = num

    def point(self) -> _Point | None:
        """Say what it is worth to end here; None: unknown."""
        depths = self._drafted
        if depths is None:
            end = self._depths.index(0) if 0 in self._depths else len(self._depths)
            depths = self._depths[:end]
        step = self._legs.step_ns(self._num, depths)
        if step is None:
            return None
        least = min(self._per_row, default=1.0) if self._per_row else 1.0
        slowest_ns = self._legs.num_batches * step / least
        return _Point(self._num, self._value / max(step, 1.0), slowest_ns)


def _best(points: Sequence[_Point], slo_ns: float, last: int | None, row: int) -> _Point:
    """The best rate of those that keep the SLO; the last one stays if it is near."""
    kept = [point for point in points if point.slowest_ns <= slo_ns]
    if not kept:
        return min(points, key=lambda point: point.slowest_ns)
    best = max(kept, key=lambda point: point.rate)
    if last is not None and abs(best.num - last) <= row:
        stays = next((point for point in kept if point.num == last), best)
        return stays if stays.rate >= NEARLY * best.rate else best
    return best


def _sizes(num_drafts: int, num_rows: int, last: int | None) -> list[int]:
    """Numbers of drafts to look at: the most of each size that costs are known by."""
    bins = [bin_of(num_rows + num) for num in range(1, num_drafts + 1)]
    sizes = {num for num, (here, after) in enumerate(pairwise(bins), 1) if here != after}
    if num_drafts:
        sizes.add(num_drafts)
    if last is not None and 0 < last <= num_drafts:
        sizes.add(last)
    return sorted(sizes)


def _draft_on(
    lengths: list[int],
    rest: Sequence[tuple[float, int, int]],
    legs: Legs,
    budget: int,
    threshold: float,
) -> float:
    """Lengthen rows while the draft leg stays beneath the verify leg.

    Returns:
        Survival of the last draft.
    """
    depths = [sum(length > depth for length in lengths) for depth in range(max(lengths, default=0))]
    last = threshold
    for minus, row, position in rest:
        if -minus < SPARE * threshold:
            break
        if position < len(depths):
            depths[position] += 1
        else:
            depths.append(1)
        found = legs.ns(budget, depths)
        if found is None or found[1] * ROOM * _turns(legs) > found[0]:
            break
        lengths[row] += 1
        last = -minus
    return last


def _turns(legs: Legs) -> float:
    """Draft legs of one drafter per verify leg."""
    return math.ceil(legs.num_batches / legs.num_drafters) / legs.num_batches
