"""Estimates one leg of a step, verify or draft: monotone tables times what is residual. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.services.coordinator.core.cost_table import CostTable
from minedraft.services.coordinator.core.origin import Origin
from minedraft.services.coordinator.core.residual import Residual

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEAST_FURTHER = 0.05
"""Of a first pass: least that a further one counts for when it is seen first."""


class VerifyLeg:
    """One forward pass, and acceptance.

    Args:
        table: By tokens: committed ones and drafts.
        residual: What steps cost at present over the table.
    """

    def __init__(self, table: CostTable | None = None, residual: Residual | None = None) -> None:
        self.table = table or CostTable()
        self.residual = residual or Residual()
        self.origin = Origin.UNKNOWN

    @property
    def known_from(self) -> str:
        """Where this was learned first, for people; empty: nothing is known."""
        return _known_from(self.origin, self.table)

    def ns(
        self, num_tokens: int, num_rows: int, context: int, *, overlapped: float
    ) -> float | None:
        """Duration of a verify step in ns; None while unknown. See `PairCosts.verify_ns`."""
        known = self.table.estimate(num_tokens, num_rows, context)
        return None if known is None else known * self.residual.factor(overlapped)

    def observe(
        self,
        num_tokens: int,
        num_rows: int,
        context: int,
        duration_ns: int,
        *,
        overlapped: float,
        is_rough: bool = False,
    ) -> None:
        """Learn from a step; `is_rough`: it fed a prompt, so it sampled at few of its tokens."""
        if num_tokens <= 0 or duration_ns <= 0:
            return
        known = self.table.estimate(num_tokens, num_rows, context)
        if known is not None and not is_rough and self.table.knows(num_tokens):
            self.residual.observe(duration_ns / known, overlapped)
        ns = duration_ns / self.residual.factor(overlapped)
        self.table.observe(num_tokens, num_rows, context, ns, is_rough=is_rough)

    def settle(self) -> None:
        """Move what is residual for steps alone into the table: the same estimates."""
        self.table.scale(self.residual.rest())


class DraftLeg:
    """One pass over what rows lack, which gives the first draft, and one per further draft.

    Args:
        first: The first pass, and what a step costs besides, by tokens fed.
        further: Each further pass, by rows.
        residual: What steps cost at present over the tables.
    """

    def __init__(
        self,
        first: CostTable | None = None,
        further: CostTable | None = None,
        residual: Residual | None = None,
    ) -> None:
        self.first = first or CostTable()
        self.further = further or CostTable()
        self.residual = residual or Residual()
        self.origin = Origin.UNKNOWN

    @property
    def known_from(self) -> str:
        """Where this was learned first, for people; empty: nothing is known."""
        return _known_from(self.origin, self.first)

    def ns(
        self,
        rows_per_depth: Sequence[int],
        num_catch_up_tokens: int,
        context: int,
        *,
        overlapped: float,
    ) -> float | None:
        """Duration of a draft step in ns; None while unknown. See `PairCosts.draft_ns`."""
        known = self._passes(rows_per_depth, num_catch_up_tokens, context)
        return None if known is None else sum(known) * self.residual.factor(overlapped)

    def observe(
        self,
        rows_per_depth: Sequence[int],
        num_catch_up_tokens: int,
        context: int,
        duration_ns: int,
        *,
        overlapped: float,
    ) -> None:
        """Learn from a step: every pass took longer than expected by the same factor."""
        num_tokens = max(num_catch_up_tokens, *rows_per_depth[:1], 0)
        if num_tokens <= 0 or duration_ns <= 0:
            return
        num_rows = rows_per_depth[0] if rows_per_depth else 0
        is_rough = num_tokens > 2 * num_rows
        known = self._passes(rows_per_depth, num_catch_up_tokens, context)
        is_first_known = self.first.knows(num_tokens)
        is_rest_known = all(self.further.knows(rows) for rows in rows_per_depth[1:])
        if known is None:
            known = [1.0] * max(len(rows_per_depth), 1)  # nothing tells one pass from another yet
        elif is_first_known and is_rest_known and not is_rough:
            self.residual.observe(duration_ns / sum(known), overlapped)
        elif is_first_known and len(known) > 1:  # what is left is the further ones'
            rest_ns = duration_ns / self.residual.factor(overlapped) - known[0]
            each_ns = max(rest_ns / (len(known) - 1), known[0] * _LEAST_FURTHER)
            known[1:] = [each_ns] * (len(known) - 1)
        ratio = duration_ns / self.residual.factor(overlapped) / sum(known)
        self.first.observe(num_tokens, num_rows, context, known[0] * ratio, is_rough=is_rough)
        if is_rough:
            return  # next to a prompt the further passes hardly count
        # One observation per step and size, or a long k would count for many.
        for rows, ns in dict(zip(rows_per_depth[1:], known[1:], strict=True)).items():
            self.further.observe(rows, rows, context, ns * ratio)

    def settle(self) -> None:
        """Move what is residual for steps alone into the tables: the same estimates."""
        factor = self.residual.rest()
        self.first.scale(factor)
        self.further.scale(factor)

    def _passes(
        self, rows_per_depth: Sequence[int], num_catch_up_tokens: int, context: int
    ) -> list[float] | None:
        """What the tables say of each pass; None if they cannot."""
        num_rows = rows_per_depth[0] if rows_per_depth else 0
        first = self.first.estimate(max(num_catch_up_tokens, num_rows), num_rows, context)
        if first is None:
            return None
        costs, cost, last = [first], first, 0
        for rows in rows_per_depth[1:]:
            if rows != last:
                last, further = rows, self.further.estimate(rows, rows, context)
                if further is None:
                    # Only single drafts were seen.
                    further = self.first.estimate(rows, rows, context)
                cost = further or first
            costs.append(cost)
        return costs


def _known_from(origin: Origin, table: CostTable) -> str:
    if not table.bins and origin is not Origin.MEASURING:
        return ""
    return str((Origin.LIVE if origin is Origin.UNKNOWN else origin).value)
