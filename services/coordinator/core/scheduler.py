"""One batch's next step: a policy decides, blocks are allocated, rows are written. Pure.

A step feeds, for each member, the committed tokens that the verifier lacks and then its drafts. So
decoding, prefill in chunks and prefill again after a preemption are one thing.

Blocks are allocated first for committed tokens, of members that decode, by rank, and then of those
that prefill, oldest first; a request may be preempted for these. Then for drafts, out of blocks
that no other request needs: k shrinks to what fits, and a draft never preempts a request.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from minedraft.plans import MAX_CATCH_UP_TOKENS
from minedraft.services.coordinator.core.prefill_budget import (
    DEFAULT_STALL,
    Load,
    PrefillBudget,
    load_of,
)
from minedraft.services.coordinator.core.request import Phase
from minedraft.services.coordinator.core.step_view import (
    DecodingMembers,
    StepView,
    most_draft_tokens,
    most_ngram_tokens,
    view_prefilling,
)
from minedraft.services.coordinator.core.wire_rows import StepRows, lags, wants_drafts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from minedraft.prefix import PrefixCache
    from minedraft.services.coordinator.core.costs import Costs
    from minedraft.services.coordinator.core.decider import Decider
    from minedraft.services.coordinator.core.decision import Decision
    from minedraft.services.coordinator.core.estimator import Estimator
    from minedraft.services.coordinator.core.request import Request
    from minedraft.services.coordinator.core.step import Step
    from minedraft.services.coordinator.core.step_view import Limits
    from minedraft.types import RowId

_by_arrival = attrgetter("arrival")


class Pool(Protocol):
    """Who gives requests KV blocks: the request table."""

    @property
    def blocks(self) -> PrefixCache:
        """The verifier's blocks. Read only."""

    @property
    def in_flight(self) -> Mapping[int, Step]:
        """Steps of other batches. Read only."""

    def allocate(self, request: Request, num_positions: int) -> bool:
        """Give `request` blocks for that many positions, preempting others if it must.

        Returns:
            False: it has to sit this step out, or was preempted itself.
        """

    def allocate_drafts(self, request: Request, num_draft_tokens: int) -> int:
        """Give `request` blocks for drafts after its committed tokens; return how many fit."""


class Scheduler:
    """See the module docstring.

    Args:
        decider: Decides how many tokens each member drafts and feeds.
        pool: Has the blocks.
        costs: What is known of steps.
        estimator: What is known of drafts.
        prefill_stall: Times that a step may take as long because of prompts; >= 1.
    """

    def __init__(
        self,
        decider: Decider,
        pool: Pool,
        costs: Costs,
        estimator: Estimator,
        *,
        prefill_stall: float = DEFAULT_STALL,
    ) -> None:
        self._decider = decider
        self._pool = pool
        self._costs = costs
        self._estimator = estimator
        self._prefill_budget = PrefillBudget(costs, prefill_stall)

    def schedule(self, batch: int, members: Sequence[Request], limits: Limits) -> StepRows:
        """Build the next step of one batch and mark its requests.

        Args:
            batch: Its number.
            members: Those that may step together, by rank; none has a step in flight.
            limits: What bounds the step.

        Returns:
            Rows for both workers; empty if no member can step.
        """
        self._prefill_budget.step += 1
        decoding = [r for r in members if r.phase is Phase.READY]
        # By arrival: a budget that the first of them take every time must not starve one.
        prefilling = sorted((r for r in members if r.phase is Phase.PREFILLING), key=_by_arrival)
        view = self._view(batch, decoding, prefilling, limits)
        decision = self._decider.choose(view)
        if prefilling:
            self._bound_prefill(decision, decoding, limits)
        decodes, prefills = self._allocate(decision, decoding, prefilling)
        step = _write(decodes, prefills, limits, self._ngrams(decodes, limits))
        if decision.score:
            step.choose_by(decision, self._estimator)
        if step.is_feeding:
            self._bound_catch_up(step, decodes, limits)
        return step

    def _bound_prefill(self, decision: Decision, decoding: list[Request], limits: Limits) -> None:
        own = Load(decision.num_draft_tokens or (), sum(r.num_tokens for r in decoding))
        others = map(load_of, self._pool.in_flight.values())
        decision.prefill_budget_tokens = self._prefill_budget.verify_tokens(
            own, others, source=limits.source, most=decision.prefill_budget_tokens
        )

    def _bound_catch_up(
        self, step: StepRows, decodes: list[tuple[Request, int]], limits: Limits
    ) -> None:
        drafting = [(request, k) for request, k in decodes if k]
        own = Load([k for _, k in drafting], sum(r.num_tokens for r, _ in drafting))
        waiting = (s for s in self._pool.in_flight.values() if s.source == limits.source)
        others = [load_of(each) for each in waiting]
        if not drafting and not any(load.num_rows for load in others):
            return  # nobody waits for it
        num_tokens = self._prefill_budget.draft_tokens(
            own, others, source=limits.source, most=limits.prefill_budget_tokens
        )
        # Rows that draft are fed first: what they may lack does not count.
        num_new = sum(len(row.new_token_ids) for row in step.draft_rows if row.num_draft_tokens)
        step.max_catch_up_tokens = min(num_tokens + num_new, MAX_CATCH_UP_TOKENS)

    def _view(
        self, batch: int, decoding: list[Request], prefilling: list[Request], limits: Limits
    ) -> StepView:
        blocks = self._pool.blocks
        acceptance = self._estimator.mean(limits.source)
        return StepView(
            batch=batch,
            decoding=DecodingMembers(decoding, limits, blocks.block_size, acceptance),
            prefilling=view_prefilling(prefilling),
            limits=limits,
            costs=self._costs,
            estimator=self._estimator,
            num_free_blocks=blocks.num_free,
            block_size=blocks.block_size,
            most_draft_tokens=most_draft_tokens(decoding, limits),
            members=decoding,
        )

    def _allocate(
        self, decision: Decision, decoding: list[Request], prefilling: list[Request]
    ) -> tuple[list[tuple[Request, int]], list[tuple[Request, int]]]:
        """Give members the blocks that they need.

        Returns:
            Who steps: requests that decode, each with its k, and that prefill, each with its chunk.
        """
        allocate, allocate_drafts = self._pool.allocate, self._pool.allocate_drafts
        # One that an older one preempted just now is no longer in the phase that it was in.
        able = [
            (request, k)
            for request, k in zip(decoding, decision.num_draft_tokens or (), strict=True)
            if request.phase is Phase.READY and allocate(request, request.num_tokens)
        ]
        prefills = []
        budget = decision.prefill_budget_tokens
        for request, most in zip(prefilling, decision.num_prefill_tokens, strict=True):
            num_feed = min(most, budget)
            if (
                num_feed > 0
                and request.phase is Phase.PREFILLING
                and allocate(request, request.num_computed + num_feed)
            ):
                prefills.append((request, num_feed))
                budget -= num_feed
        size = self._pool.blocks.block_size
        decodes = [
            (request, k)
            if request.num_tokens + k <= len(request.block_ids) * size
            else (request, k and allocate_drafts(request, k))
            for request, k in able
        ]
        return decodes, prefills

    def _ngrams(
        self, decodes: list[tuple[Request, int]], limits: Limits
    ) -> dict[RowId, int] | None:
        """Give rows that their source has no drafts for blocks for drafts of the verifier's own.

        Returns:
            How many fit; None: the verifier makes none.
        """
        if not limits.num_ngram_tokens:
            return None
        found = {}
        for request, k in decodes:
            if not k and (not limits.source or limits.source in request.behind):
                wanted = most_ngram_tokens(request, limits)
                found[request.row_id] = wanted and self._pool.allocate_drafts(request, wanted)
        return found


def _write(
    decodes: list[tuple[Request, int]],
    prefills: list[tuple[Request, int]],
    limits: Limits,
    ngrams: dict[RowId, int] | None,
) -> StepRows:
    """Write the rows of a step; those that decode come first."""
    step, source = StepRows(), limits.source
    step.add_decoding(decodes, source, ngrams)
    for request, k in decodes:
        if k:
            continue
        if source in request.behind:
            if wants_drafts(request, limits):
                step.num_behind += 1
                step.add_catch_up(request, source)
        elif lags(request, source) and wants_drafts(request, limits):
            step.add_draft(request, 0, source)
    for request, num_feed in prefills:
        step.add_verify(request, num_feed, 0)
        request.num_computed += num_feed  # a result with tokens sets it anew
        if not wants_drafts(request, limits):
            continue
        # The drafter's prefill runs beside the verifier's.
        if source in request.behind:
            step.add_catch_up(request, source)
        elif source not in request.drafter_lens:
            step.add_draft(request, 0, source)
    return step
