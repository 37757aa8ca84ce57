"""Turns the state of requests and workers into the plans that go out now. Pure.

Puts decisions in order and numbers the steps: `batch_manager` decides who joins which batch,
`sources` who drafts for it, `scheduler` what a batch does in a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from minedraft.errors import ProtocolError
from minedraft.plans import DraftPlan, VerifyPlan
from minedraft.services.coordinator.core.draft_source import Place
from minedraft.services.coordinator.core.request import Phase
from minedraft.services.coordinator.core.reserved import Reserved
from minedraft.services.coordinator.core.scheduler import Scheduler
from minedraft.services.coordinator.core.shapes import load_of
from minedraft.services.coordinator.core.step import Step
from minedraft.services.coordinator.core.step_view import Limits
from minedraft.services.coordinator.core.suspects import apart
from minedraft.services.coordinator.core.wire_rows import StepRows, warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.services.coordinator.core.costs import Costs
    from minedraft.services.coordinator.core.deaths import Deaths
    from minedraft.services.coordinator.core.decider import Decider
    from minedraft.services.coordinator.core.draft_source import DraftSource
    from minedraft.services.coordinator.core.estimator import Estimator
    from minedraft.services.coordinator.core.request_table import RequestTable
    from minedraft.services.coordinator.core.shaper import Shaper
    from minedraft.services.coordinator.core.shapes import Load
    from minedraft.services.coordinator.core.sources import Sources
    from minedraft.types import ModelInfo

    Plans: TypeAlias = tuple[DraftPlan | None, VerifyPlan]

_NOTHING = VerifyPlan(0, 0, 0)
"""Beside a draft plan that no verify plan belongs to; not sent."""


class Planner:
    """Plans every batch that is idle.

    Args:
        table: The live requests.
        sources: Who drafts.
        deaths: Who must have the verifier to itself.
        costs: What is known of steps.
        estimator: What is known of drafts.
        shaper: Decides how many batches there are, and whether they draft.
        decider: Decides how many tokens each request drafts and feeds.
        prefill_budget_tokens: Most prompt tokens in one step.
        prefill_stall: Times that a step may take as long because of them; >= 1.
        has_ngrams: Whether the verifier drafts where no drafts come.
    """

    def __init__(
        self,
        table: RequestTable,
        sources: Sources,
        deaths: Deaths,
        *,
        costs: Costs,
        estimator: Estimator,
        shaper: Shaper,
        decider: Decider,
        prefill_budget_tokens: int,
        prefill_stall: float,
        has_ngrams: bool = False,
    ) -> None:
        self._table = table
        self._sources = sources
        self._deaths = deaths
        self._costs = costs
        self._shaper = shaper
        self._decider = decider
        self._scheduler = Scheduler(decider, table, costs, estimator, prefill_stall=prefill_stall)
        self._prefill_budget = prefill_budget_tokens
        self._has_ngrams = has_ngrams
        self._ahead: set[int] = set()
        """Sources that may draw ahead."""
        self.reserved = Reserved()
        """Peaks of the pool. Read only."""
        self._next_step = 1

    def reshape(self) -> None:
        """Give the batches the number and size that they should have; members move later."""
        shaper = self._shaper
        self._table.batches.reshape(
            shaper.shape.num_batches, shaper.max_batch_size, num_slots=shaper.mode.num_slots
        )

    def plan(self, verifier: ModelInfo) -> Iterator[Plans]:
        """Plan what can be planned.

        Yields:
            Plans to send now, the draft plan first. A plan without rows only closes.
        """
        table = self._table
        has_spare = verifier.num_spare_threads > 0
        num_drafters = len(self._sources.able)
        if self._shaper.look(table.num_running, num_drafters, self._load, has_spare=has_spare):
            self.reshape()
        at_sync = [b for b in table.batches.numbers if b not in table.in_flight]
        idle = [b for b in at_sync if b < table.batches.num_batches]
        # Smaller batches first, so that arrivals reach an empty one; all of this before the first
        # plan, so that a batch that is filled by re-balancing starts at once.
        for batch in sorted(idle, key=lambda b: (table.batches.size(b), b)):
            table.admit(batch)
        for batch in at_sync:
            table.rebalance(batch)
        on_trial = self._on_trial()
        for batch in sorted(idle, key=lambda b: b not in on_trial) if on_trial else idle:
            if on_trial and table.in_flight:
                break  # no step runs beside its own
            yield from self._plan_batch(batch, verifier)
        if not any(step.is_trial for step in table.in_flight.values()):
            k = self._shaper.mode.num_draft_tokens
            self.reserved.look(table.blocks, table.live.values(), k)
        yield from self._plan_warm_ups(verifier)
        yield from self._plan_catch_ups(verifier)
        yield from self._housekeeping()

    def number(self) -> int:
        """Number a step."""
        step_id, self._next_step = self._next_step, self._next_step + 1
        return step_id

    def check_planned(self, step_id: int) -> None:
        """Check that a step was planned at some time.

        Raises:
            ProtocolError: it was not.
        """
        if not 0 < step_id < self._next_step:
            raise ProtocolError(f"step_id={step_id}: no step was planned with that number")

    def _on_trial(self) -> set[int | None]:
        """Batches with a member that must have the verifier to itself."""
        return {
            self._table.batches.batch_of(request.request_id)
            for request in self._deaths.on_trial
            if request.phase is not Phase.WAITING
        }

    def _load(self) -> Load:
        running = (r for r in self._table.live.values() if r.phase is not Phase.WAITING)
        k = self._decider.typical_draft_tokens(self._shaper.mode.num_draft_tokens)
        return load_of(running, k)

    def _plan_batch(self, batch: int, verifier: ModelInfo) -> Iterator[Plans]:
        table = self._table
        if table.batches.size(batch) == 0:
            return
        drafter = self._sources.of_batch(batch)
        limits = self._limits(self._shaper.next_k(), verifier, drafter)
        table.begin_plan()
        rows = StepRows()
        for group in apart(table.members_to_plan(batch)):
            rows = self._scheduler.schedule(batch, group, limits)
            if rows.verify_rows:
                break
        if not rows.verify_rows:
            return
        table.batches.start(batch)
        step = Step(
            step_id=self.number(),
            batch=batch,
            requests=rows.requests,
            num_scheduled_tokens=rows.num_scheduled_tokens,
            context=rows.context,
            num_draft_tokens=rows.num_draft_tokens,
            num_ngram_tokens=rows.num_ngram_tokens,
            num_behind=rows.num_behind,
            source=limits.source if any(rows.num_draft_tokens.values()) else 0,
            score=rows.score,
        )
        has_spare = verifier.num_spare_threads > 0
        step.is_wide = has_spare and self._shaper.shape.is_wide and not step.source
        table.in_flight[batch] = step
        table.prefixes.begin_step(step)
        if step.is_wide:
            yield from self._end_run_ahead()
        yield self._draft_plan(step, rows, drafter), self._verify_plan(step, rows)

    def _limits(self, k: int, verifier: ModelInfo, drafter: DraftSource | None) -> Limits:
        mode_k = self._shaper.mode.num_draft_tokens
        return Limits(
            num_draft_tokens=self._decider.most_draft_tokens(k) if drafter else 0,
            prefill_budget_tokens=self._prefill_budget,
            max_model_len=verifier.max_model_len,
            drafter_max_len=drafter.model.max_model_len if drafter else 0,
            drafter_vocab_size=drafter.model.vocab_size if drafter else 0,
            source=drafter.source_id if drafter else 0,
            num_batches=min(self._table.batches.num_batches, max(self._table.num_running, 1)),
            num_drafters=max(len(self._sources.able), 1),
            # A shape that does not draft has been chosen; without a drafter there was no choice.
            num_ngram_tokens=(k if drafter else mode_k) if self._has_ngrams else 0,
        )

    def _draft_plan(
        self, step: Step, rows: StepRows, drafter: DraftSource | None
    ) -> DraftPlan | None:
        if not rows.draft_rows or drafter is None or drafter.place is not Place.LINK:
            return None
        return DraftPlan(
            step.step_id,
            step.batch,
            drafter.source_id,
            rows=tuple(rows.draft_rows),
            opens=tuple(rows.draft_opens),
            closes=self._table.take_drafter_closes(drafter.source_id),
            max_catch_up_tokens=rows.max_catch_up_tokens,
            score=rows.score,
            stop=rows.stop,
            may_run_ahead=step.source > 0 and self._may_run_ahead(drafter),
        )

    def _may_run_ahead(self, drafter: DraftSource) -> bool:
        """Whether a source drafts for one batch only, so that its drafts hide behind nothing."""
        table, source = self._table, drafter.source_id
        batches = [b for b in table.batches.numbers if table.batches.size(b)]
        its_own = [b for b in batches if self._sources.of_batch(b) is drafter]
        is_on = self._shaper.shape.num_draft_tokens > 0 and len(its_own) == 1
        self._ahead = (self._ahead | {source}) if is_on else (self._ahead - {source})
        return is_on

    def _end_run_ahead(self) -> Iterator[Plans]:
        """Tell drafters whose cores are lent to stop what they draw ahead."""
        sources, self._ahead = self._ahead, set()
        for source in self._sources.able:
            if source.source_id in sources:
                closes = self._table.take_drafter_closes(source.source_id)
                yield DraftPlan(0, 0, source.source_id, closes=closes), _NOTHING

    def _verify_plan(self, step: Step, rows: StepRows) -> VerifyPlan:
        return VerifyPlan(
            step.step_id,
            step.batch,
            step.source,
            rows=tuple(rows.verify_rows),
            opens=tuple(rows.verify_opens),
            closes=self._table.take_verifier_closes(),
            draft_timeout_ns=self._costs.draft_timeout_ns(step.source, self._num_ahead(step)),
            is_wide=step.is_wide,
            selection=rows.selection,
        )

    def _num_ahead(self, step: Step) -> int:
        """Count the steps that the source of a planned step has still to draft before it."""
        in_flight = self._table.in_flight.values()
        return sum(
            other.source == step.source and not other.is_drafted
            for other in in_flight
            if other is not step
        )

    def _plan_warm_ups(self, verifier: ModelInfo) -> Iterator[Plans]:
        """Feed warming drafters what they lack; each has at most one plan out."""
        for source in self._sources.warming:
            if source.owed_step:
                continue
            plan = self._feed(source, verifier, again=source.is_behind)
            if plan is None:
                source.caught_up()
            else:
                yield plan, _NOTHING

    def _plan_catch_ups(self, verifier: ModelInfo) -> Iterator[Plans]:
        """Feed drafters what they lack in plain decoding, so that they can draft at once.

        Each has at most one such plan out.
        """
        if not self._shaper.is_catch_up_due():
            return
        for source in self._sources.able:
            if source.place is Place.LINK and not source.owed_step:
                plan = self._feed(source, verifier, again=False)
                if plan is not None:
                    yield plan, _NOTHING

    def _feed(self, source: DraftSource, verifier: ModelInfo, *, again: bool) -> DraftPlan | None:
        """Tell a drafter what it lacks of the admitted requests; None: nothing."""
        admitted = [r for r in self._table.live.values() if r.phase is not Phase.WAITING]
        limits = self._limits(self._shaper.mode.num_draft_tokens, verifier, source)
        rows, opens = warm_up(admitted, limits, again=again)
        if not rows:
            return None
        step_id = self.number()
        source.feed(step_id)
        closes = self._table.take_drafter_closes(source.source_id)
        return DraftPlan(step_id, 0, source.source_id, rows, opens, closes)

    def _housekeeping(self) -> Iterator[Plans]:
        """Tell workers of ended rows that no step's plan has mentioned."""
        closes = self._table.take_verifier_closes()
        if closes:
            yield None, VerifyPlan(0, 0, 0, closes=closes)
        for source in self._table.sources_with_closes():
            closes = self._table.take_drafter_closes(source)
            may_run_ahead = source in self._ahead
            yield DraftPlan(0, 0, source, closes=closes, may_run_ahead=may_run_ahead), _NOTHING
