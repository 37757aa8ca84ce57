"""Prices shapes: how many batches rotate, and whether they draft. Pure.

With A batches and D drafters (batch b is drafted for by the (b mod D)-th), a verify step ends every

    V + t                                       for A = 1
    max(V, t * ceil(A / D) / A, (V + t) / A)    otherwise

where V and t are what a verify and a draft step of one batch take: the verifier runs every step,
the busiest drafter runs ceil(A / D) of A, and one batch alone needs V + t for its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from minedraft.services.coordinator.core.costs import per_depth

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from minedraft.services.coordinator.core.request import Request


class Shape(NamedTuple):
    """How requests rotate at present."""

    num_batches: int
    num_draft_tokens: int
    """k; 0: plain decoding."""
    is_wide: bool = False
    """Whether plain decoding computes on the drafter's cores too."""


class StepCosts(Protocol):
    """Durations of steps in ns; None: nothing is known. Of `Costs`, or of a simulated device."""

    def verify_ns(
        self, num_tokens: int, num_rows: int, context: int, *, overlapped: float
    ) -> float | None:
        """Duration of a verify step.

        Args:
            num_tokens: Committed tokens that are fed, and drafts.
            num_rows: Rows.
            context: Committed tokens of all rows together.
            overlapped: Share of it during which another device computes, 0..1.
        """

    def draft_ns(
        self,
        rows_per_depth: Sequence[int],
        num_catch_up_tokens: int,
        context: int,
        *,
        overlapped: float,
    ) -> float | None:
        """Duration of a draft step.

        Args:
            rows_per_depth: Rows that draft a first, a second, ... token.
            num_catch_up_tokens: Committed tokens that are fed, at least one per row that drafts.
            context: Committed tokens of all rows together.
            overlapped: Share of it during which another device computes, 0..1.
        """


@dataclass(frozen=True, slots=True)
class Load:
    """All requests that run, for a price."""

    num_requests: int
    context: int
    """Committed tokens of all of them."""
    rows_per_depth: tuple[int, ...]
    """Requests that would draft a first token, a second one, and so on."""

    @property
    def num_drafting(self) -> int:
        """Requests that would draft at all."""
        return self.rows_per_depth[0] if self.rows_per_depth else 0


def load_of(requests: Iterable[Request], num_draft_tokens: int) -> Load:
    """Describe requests; each drafts `num_draft_tokens` at the most, or what its caller asks."""
    ks, context = [], 0
    for request in requests:
        wanted = request.speculation.num_draft_tokens
        ks.append(num_draft_tokens if wanted is None else min(wanted, num_draft_tokens))
        context += request.num_tokens
    return Load(len(ks), context, per_depth(ks))


def step_ns(num_batches: int, num_drafters: int, verify_ns: float, draft_ns: float) -> float:
    """Time from the end of one verify step to the end of the next, of any batch."""
    if num_batches == 1:
        return verify_ns + draft_ns
    busiest = math.ceil(num_batches / num_drafters)
    return max(verify_ns, draft_ns * busiest / num_batches, (verify_ns + draft_ns) / num_batches)


def predict_ns(shape: Shape, load: Load, num_drafters: int, costs: StepCosts) -> float | None:
    """Time from one verify step to the next under a shape; None while a cost is unknown."""
    parts = shape.num_batches
    rows, context = _share(load.num_requests, parts), _share(load.context, parts)
    if not shape.num_draft_tokens or not load.num_drafting:
        return costs.verify_ns(rows, rows, context, overlapped=0)
    num_tokens = _share(load.num_requests + sum(load.rows_per_depth), parts)
    depths = tuple(_share(count, parts) for count in load.rows_per_depth)
    verify = costs.verify_ns(num_tokens, rows, context, overlapped=0)
    draft = costs.draft_ns(depths, rows, context, overlapped=0)
    if verify is None or draft is None:
        return None
    if parts > 1:
        # Each leg runs beside the other one for as long as that one takes.
        in_verify, in_draft = min(draft / verify, 1.0), min(verify / draft, 1.0)
        verify = costs.verify_ns(num_tokens, rows, context, overlapped=in_verify) or verify
        draft = costs.draft_ns(depths, rows, context, overlapped=in_draft) or draft
    return step_ns(parts, num_drafters, verify, draft)


def tokens_per_step(shape: Shape, load: Load, num_accepted: float) -> float:
    """Output tokens of one verify step.

    Args:
        shape: How requests rotate.
        load: They.
        num_accepted: Drafts that the target keeps per request that drafts.
    """
    num_kept = load.num_drafting * num_accepted if shape.num_draft_tokens else 0.0
    return (load.num_requests + num_kept) / shape.num_batches


def _share(count: int, parts: int) -> int:
    return -(-count // parts)
