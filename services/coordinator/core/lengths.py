"""Keeps what the solver said of each batch for some steps. Pure.

Forecasts and costs change slowly, and to solve a step is not free. A sequence that joined since
drafts what its own forecast is worth at the last price.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from minedraft.services.coordinator.core.solver import solve_depth

if TYPE_CHECKING:
    from minedraft.services.coordinator.core.request import Request
    from minedraft.services.coordinator.core.step_view import StepView
    from minedraft.types import RowId

KEPT_STEPS: Final = 8
"""Steps that a solution is kept for, of a batch that stays about as large."""
PROBE_STEPS: Final = 32
"""Steps without drafts after which a row makes one: nothing else tells that they got better."""
_ABOUT: Final = 8
"""A batch is about as large while it differs by less than one in so many."""


class Lengths:
    """See the module docstring.

    Args:
        slo_ns: Longest time per token of the slowest row; 0: none.
    """

    def __init__(self, slo_ns: float) -> None:
        self._slo_ns = slo_ns or math.inf
        self._kept: dict[int, _Kept] = {}
        """By batch."""
        self._num_steps = 0

    def of(self, view: StepView) -> Plan | None:
        """Say what the rows of a step draft, and how much is verified; None: a cost is unknown."""
        self._num_steps += 1
        kept = self._kept.get(view.batch)
        about = (view.limits.source, view.limits.num_draft_tokens, view.limits.num_batches)
        num_rows = len(view.most_draft_tokens)
        if (
            kept is None
            or kept.about != about
            or self._num_steps >= kept.until
            or abs(num_rows - kept.num_rows) * _ABOUT > kept.num_rows
        ):
            kept = self._solve(view, about, kept)
            if kept is None:
                return None
            self._kept[view.batch] = kept
        known = kept.lengths
        lengths = [
            length
            if (length := known.get(member.row_id)) is not None
            else self._join(view, kept, member)
            for member in view.members
        ]
        budget = kept.budget
        if 0 in lengths:
            for index, member in enumerate(view.members):
                if not lengths[index] and (self._num_steps + member.row_id) % PROBE_STEPS == 0:
                    lengths[index] = 1
                    budget += 1
        return Plan(lengths, budget, kept.threshold)

    def _solve(
        self, view: StepView, about: tuple[int, int, int], last: _Kept | None
    ) -> _Kept | None:
        is_known = last is not None and last.about == about
        most = max(view.most_draft_tokens)
        depths = range(1, most + 1)
        if last is not None and is_known:  # it moves by one; the whole range is dear
            depths = range(max(min(last.depth, most) - 1, 1), min(last.depth + 1, most) + 1)
        solved = solve_depth(
            view.forecasts(),
            view.legs(),
            depths,
            last_budget=last.budget if last is not None and is_known else None,
            slo_ns=self._slo_ns,
        )
        if solved is None:
            return None
        found, depth = solved
        # Batches are solved in different steps.
        until = self._num_steps + KEPT_STEPS * view.limits.num_batches
        lengths = {
            member.row_id: length
            for member, length in zip(view.members, found.lengths, strict=True)
        }
        return _Kept(
            about,
            len(lengths),
            until,
            lengths,
            found.budget,
            found.threshold,
            found.least,
            depth,
        )

    @staticmethod
    def _join(view: StepView, kept: _Kept, member: Request) -> int:
        """Say what a row drafts that was not there when the step was solved."""
        forecast = view.estimator.forecast(member, view.limits.source, kept.depth)
        length = kept.lengths[member.row_id] = sum(each >= kept.least for each in forecast)
        return length


class Plan(NamedTuple):
    """What a step does."""

    lengths: list[int]
    budget: int
    threshold: float
    """Survival of the last draft in the budget."""


class _Kept(NamedTuple):
    about: tuple[int, int, int]
    """Source, k and batches that it was solved for."""
    num_rows: int
    until: int
    """Step from which it is too old."""
    lengths: dict[RowId, int]
    """By row."""
    budget: int
    threshold: float
    least: float
    """Survival of the last draft that is made."""
    depth: int
    """Most drafts of a row."""
