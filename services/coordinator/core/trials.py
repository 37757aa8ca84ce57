"""Has trial steps measure what steps cost, while nothing is served. Pure.

A trial step goes through the ordinary sessions. At the verifier its rows take ordinary blocks of
the pool, held by a step without requests, like those of requests that ended meanwhile. The drafter
sends no packet. So whatever happens to a worker ends a trial as it ends any step, and nothing is
left of it: no block, no row, no packet, no count.

Sizes cover 1 to all slots, with one token per row and with k drafts. The verifier measures drafts
as rows with a single token, because drafts come in packets only: the target samples at each, as it
does at drafts. Last, both workers are measured at once: on one machine that costs more.

A request ends all trials of the models that there are. It waits for the one in flight at most, and
what is not known yet is learned from its own steps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.admin import CostStatus
from minedraft.plans import VerifyPlan
from minedraft.services.coordinator.core import trial_plans
from minedraft.services.coordinator.core.answers import Answer
from minedraft.services.coordinator.core.draft_source import Place
from minedraft.services.coordinator.core.origin import Origin
from minedraft.services.coordinator.core.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minedraft.plans import DraftPlan, DraftResult, StepTiming
    from minedraft.services.coordinator.core.costs import Costs
    from minedraft.services.coordinator.core.draft_source import DraftSource
    from minedraft.services.coordinator.core.request_table import RequestTable
    from minedraft.services.coordinator.core.sources import Sources
    from minedraft.services.coordinator.core.trial_plans import Trial
    from minedraft.types import Mode, ModelInfo

MAX_LOSSES: Final = 2
"""Workers that are lost during trials before trials are over for good: one that dies of them must
serve all the same."""
_BATCH = 0


@dataclass(slots=True)
class _Running:
    """The trial step in flight."""

    step: Step
    is_verifying: bool
    source: int
    """Draft source that has not answered yet; 0: there is none."""
    longest_ns: int = 0
    """Of the answers so far."""


class Trials:
    """See the module docstring.

    Args:
        table: Has blocks and rows.
        sources: Who drafts.
        costs: Learns from trials, and says of which models nothing is known.
        number: Numbers a step.
        max_s: Device time of all trials together, seconds; 0: no trials.
    """

    def __init__(
        self,
        table: RequestTable,
        sources: Sources,
        costs: Costs,
        number: Callable[[], int],
        *,
        max_s: float,
    ) -> None:
        self._table = table
        self._sources = sources
        self._costs = costs
        self._number = number
        self._max_ns = int(max_s * 1e9)
        self._todo: deque[Trial] = deque()
        self._running: _Running | None = None
        self._num_losses = 0
        self.num_planned = 0
        """Trials that there were or are to do."""
        self.num_over = 0
        """Of them, those that are done or given up."""
        self.spent_ns = 0
        """Device time; of two workers at once the longer one's."""

    def owns(self, step_id: int) -> bool:
        """Whether a step is the trial in flight."""
        return self._running is not None and self._running.step.step_id == step_id

    def status(self) -> CostStatus:
        """Say where costs come from, for an operator."""
        draft = next(iter(self._costs.draft_legs), None)
        return CostStatus(
            self._costs.verify.known_from,
            draft.known_from if draft is not None else "",
            self.num_planned,
            self.num_over,
            self.spent_ns,
        )

    # -- plans ------------------------------------------------------------------------------

    def plan(
        self, mode: Mode, verifier: ModelInfo
    ) -> Iterator[tuple[DraftPlan | None, VerifyPlan]]:
        """Plan the next trial, if there is one. Nothing is live, and nothing in flight.

        Yields:
            Its plans, to send now.
        """
        if self._running is not None:
            return  # the drafter has not answered
        source = self._sources.of_batch(_BATCH) if mode.num_draft_tokens else None
        if source is not None and source.place is not Place.LINK:
            source = None
        self._list(mode, source)
        while self._todo:
            trial = self._todo.popleft()
            if self._fits(trial, verifier, source):
                yield self._begin(trial, verifier, source)
                return
            self.num_over += 1
        self._conclude(Origin.TRIALS)

    def give_up(self) -> None:
        """A request is here: what is not known of the models that there are, its steps show."""
        self._clear()
        self._conclude(Origin.LIVE)
        self._costs.set_origin(Origin.UNKNOWN, Origin.LIVE)

    def _list(self, mode: Mode, source: DraftSource | None) -> None:
        """List the trials of models of which nothing is known."""
        if not self._max_ns:
            self.give_up()
            return
        num_before = len(self._todo)
        if self._costs.verify.origin is Origin.UNKNOWN:
            self._costs.verify.origin = Origin.MEASURING
            self._todo += trial_plans.verify_trials(mode)
        if source is not None:
            leg = self._costs.of_source(source.source_id).leg
            if leg.origin is Origin.UNKNOWN:
                leg.origin = Origin.MEASURING
                self._todo += trial_plans.draft_trials(mode)
        self.num_planned += len(self._todo) - num_before

    def _fits(self, trial: Trial, verifier: ModelInfo, source: DraftSource | None) -> bool:
        """Whether there is room for a trial, and time as far as that is known."""
        expected_ns: list[float | None] = [0.0]
        room = verifier.max_model_len
        if trial.verify_rows:
            num_tokens = trial.verify_rows * trial.num_tokens
            expected_ns.append(
                self._costs.verify_ns(num_tokens, trial.verify_rows, num_tokens, overlapped=True)
            )
        if trial.draft_rows:
            if source is None:
                return False
            room = min(room, source.model.max_model_len)
            num_tokens = trial.draft_rows * trial.num_tokens
            rows = (trial.draft_rows,) * trial.k
            expected_ns.append(
                self._costs.draft_ns(
                    rows, num_tokens, num_tokens, overlapped=True, source=source.source_id
                )
            )
        num_blocks = trial.verify_rows * self._table.blocks.blocks_for(trial.num_tokens)
        return (
            num_blocks <= self._table.blocks.num_free
            and trial.num_tokens + trial.k < room
            and self.spent_ns + max(ns or 0.0 for ns in expected_ns) < self._max_ns
        )

    def _begin(
        self, trial: Trial, verifier: ModelInfo, source: DraftSource | None
    ) -> tuple[DraftPlan | None, VerifyPlan]:
        """Write the plans of a trial that fits."""
        step_id = self._number()
        row_ids = self._table.number_rows(trial.num_rows)
        vocab_size = min(verifier.vocab_size, source.model.vocab_size if source else 2**32)
        opened = trial_plans.opens(trial, row_ids, vocab_size)
        draft, verify = None, VerifyPlan(0, 0, 0)
        step = Step(step_id, _BATCH, {}, {}, is_trial=True)
        self._running = _Running(step, is_verifying=False, source=0)
        if source is not None and trial.draft_rows:
            draft = trial_plans.draft_plan(trial, step_id, _BATCH, opened, source.source_id)
            # It runs plans in their order: the rows are closed after this one.
            self._table.close_at_drafter(source.source_id, row_ids[: trial.draft_rows])
            self._running.source = source.source_id
            step.num_draft_tokens = dict.fromkeys(row_ids[: trial.draft_rows], trial.k)
            step.context = trial.draft_rows * trial.num_tokens
        if trial.verify_rows:
            blocks = self._table.blocks
            taken = blocks.allocate(trial.verify_rows * blocks.blocks_for(trial.num_tokens))
            verify = trial_plans.verify_plan(trial, step_id, _BATCH, opened, taken)
            verifying = Step(
                step_id,
                _BATCH,
                {},
                dict.fromkeys(row_ids[: trial.verify_rows], 0),
                num_scheduled_tokens=trial.verify_rows * trial.num_tokens,
                context=trial.verify_rows * trial.num_tokens,
                is_trial=True,
                orphans=taken,
                orphan_rows=row_ids[: trial.verify_rows],
            )
            self._table.in_flight[_BATCH] = verifying
            self._running.is_verifying = True
        return draft, verify

    # -- answers ----------------------------------------------------------------------------

    def verified(self, step: Step, timing: StepTiming) -> None:
        """The verify step of a trial is over."""
        self._costs.verified(step, Answer([]), timing)
        if self._running is not None and self.owns(step.step_id):
            self._running.is_verifying = False
            self._answered(self._running, timing.total_ns)

    def drafted(self, result: DraftResult) -> bool:
        """Take a drafter's answer; False: it is no trial's."""
        running = self._running
        if running is None or (running.step.step_id, running.source) != (
            result.step_id,
            result.epoch,
        ):
            return False
        self._costs.drafted(result, running.step)
        running.source = 0
        self._answered(running, result.timing.total_ns)
        return True

    def verifier_lost(self) -> None:
        """The verifier session ended, and the trial with it."""
        if self._running is not None:
            self._num_losses += 1
            self.num_over += 1
        self._running = None
        self._clear()
        self._conclude(Origin.UNKNOWN if self._num_losses < MAX_LOSSES else Origin.LIVE)

    def source_lost(self, source: int) -> None:
        """A draft source is over. What the verifier does goes on."""
        running = self._running
        if running is not None and running.source == source:
            self._num_losses += 1
            running.source = 0
            self._answered(running, 0)
        leg = self._costs.of_source(source).leg
        if leg.origin is Origin.MEASURING:
            leg.origin = Origin.UNKNOWN if self._num_losses < MAX_LOSSES else Origin.LIVE
            kept = [trial for trial in self._todo if not trial.draft_rows]
            self.num_over += len(self._todo) - len(kept)
            self._todo = deque(kept)

    def _answered(self, running: _Running, total_ns: int) -> None:
        running.longest_ns = max(running.longest_ns, total_ns)
        if not running.is_verifying and not running.source:
            self.spent_ns += running.longest_ns
            self.num_over += 1
            self._running = None
            self._costs.settle()

    def _clear(self) -> None:
        self.num_over += len(self._todo)
        self._todo.clear()

    def _conclude(self, origin: Origin) -> None:
        """Nothing is measured any more."""
        self._costs.set_origin(Origin.MEASURING, origin)
