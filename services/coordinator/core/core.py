"""The coordinator's truth: requests, steps, workers. Pure.

Events in (`submit`, `apply`, `verifier_lost`, ...), plans out (`plan`). No clock, no
asyncio, no torch, no protobuf: the same core runs under the engine and under hypothesis.

Per batch at most one step is in flight. As soon as a batch's step is committed its next one is
planned and goes to both workers at once. A drafter runs its plans first-in first-out; the verifier
runs those first whose drafts have come, and says which it begins. With two batches that is
MineDraft's rotation; with one it is sequential speculation; with k = 0 it is plain decoding.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from minedraft.plans import MAX_ROWS
from minedraft.policy_options import PolicyOptions
from minedraft.prefix import PrefixCache
from minedraft.services.coordinator.core.answers import read_answer
from minedraft.services.coordinator.core.capacity import check_ids, check_queue, fits, too_large
from minedraft.services.coordinator.core.costs import Costs
from minedraft.services.coordinator.core.counters import Counters
from minedraft.services.coordinator.core.deaths import Deaths
from minedraft.services.coordinator.core.decider import Decider
from minedraft.services.coordinator.core.estimate_forms import PREFIX
from minedraft.services.coordinator.core.estimator import Estimator
from minedraft.services.coordinator.core.facts import Facts
from minedraft.services.coordinator.core.outcome import ERROR, settle
from minedraft.services.coordinator.core.planner import Planner
from minedraft.services.coordinator.core.prefill_budget import DEFAULT_STALL
from minedraft.services.coordinator.core.request import Event, Phase, advance_all
from minedraft.services.coordinator.core.request_table import RequestTable
from minedraft.services.coordinator.core.shaper import Shaper
from minedraft.services.coordinator.core.sources import Sources
from minedraft.services.coordinator.core.suspects import count_failure
from minedraft.services.coordinator.core.trials import Trials
from minedraft.services.coordinator.core.verifying import Verifying
from minedraft.services.coordinator.core.wire_rows import note_behind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from minedraft.plans import DraftPlan, DraftResult, StepBegun, VerifyPlan, VerifyResult
    from minedraft.services.coordinator.core.draft_source import DraftSource
    from minedraft.services.coordinator.core.outcome import Keep, Outcome
    from minedraft.services.coordinator.core.request import Request
    from minedraft.types import Mode, ModelInfo, RequestId


class Core(Facts):
    """See the module docstring.

    Args:
        mode: How batches rotate; with the shape `auto`, the bounds of how.
        prefill_budget_tokens: Most prompt tokens in one step.
        prefill_stall: Times that a step may take as long because of them; >= 1.
        max_waiting: Longest queue.
        policy_options: Settings of the policies, which decide how many tokens each request drafts
            and feeds in a step; the mode names one.
        step_timeout_s: What a worker may take for a step; bounds the wait for drafts.
        prefix_cache: Whether requests that begin alike share blocks.
        trial_s: Device time of trial steps, which measure costs while idle; 0: none.
        max_rows: Most requests that one batch may have.
        assignment: Which rules assign requests to batches.
        has_ngrams: Whether the verifier drafts from a row's own tokens where no drafts come.
    """

    def __init__(
        self,
        mode: Mode,
        *,
        prefill_budget_tokens: int = 512,
        prefill_stall: float = DEFAULT_STALL,
        max_waiting: int = 1024,
        policy_options: PolicyOptions | None = None,
        step_timeout_s: float = math.inf,
        prefix_cache: bool = True,
        trial_s: float = 0.0,
        max_rows: int = MAX_ROWS,
        assignment: str = "balanced",
        has_ngrams: bool = False,
    ) -> None:
        self.max_waiting = max_waiting
        self._has_prefix_cache = prefix_cache
        self._table = RequestTable(mode.num_batches, mode.max_batch_size, assignment)
        self._counters = Counters()
        self.sources = Sources()
        """Draft sources. Read only: what happens to them is told by the methods below."""
        self._deaths = Deaths()
        self._costs = Costs(step_timeout_s)
        self.decider = Decider(mode.policy, policy_options or PolicyOptions())
        """The policy. Read only: a mode is set below."""
        self.estimator = Estimator()
        """How likely drafts stand. Read only."""
        self.shaper = Shaper(mode, self._costs, max_rows=max_rows)
        """The shape. Read only: a mode is set below."""
        self._planner = Planner(
            self._table,
            self.sources,
            self._deaths,
            costs=self._costs,
            estimator=self.estimator,
            shaper=self.shaper,
            decider=self.decider,
            prefill_budget_tokens=prefill_budget_tokens,
            prefill_stall=prefill_stall,
            has_ngrams=has_ngrams,
        )
        self.trials = Trials(
            self._table, self.sources, self._costs, self._planner.number, max_s=trial_s
        )
        """Trial steps. Read only."""
        self._verifier: ModelInfo | None = None
        self._verifying = Verifying(self._table.in_flight)
        self._next_arrival = 0

    # -- earlier runs -----------------------------------------------------------------------

    def seed(self, forms: Mapping[str, object]) -> dict[str, str]:
        """Know what earlier runs learned of steps and drafts.

        Args:
            forms: What `forms` returned in each, newest first.

        Returns:
            Why others were refused, by name.
        """
        curves = {name: form for name, form in forms.items() if name.startswith(PREFIX)}
        others = {name: form for name, form in forms.items() if name not in curves}
        return self._costs.seed(others) | self.estimator.seed(curves)

    def forms(self) -> dict[str, object]:
        """Return what is known as JSON objects, by names of files."""
        return self._costs.forms() | self.estimator.forms()

    # -- requests ---------------------------------------------------------------------------

    def check_capacity(self, count: int = 1) -> None:
        """Check that `count` samples of one request fit into the queue, where all begin.

        Raises:
            InvalidRequestError: they never will.
            QueueFullError: not now.
        """
        check_queue(len(self._table.waiting), count, self.max_waiting)

    def submit(self, *requests: Request) -> None:
        """Queue the samples of one request: all of them or none.

        Raises:
            DuplicateRequestError: a live request has an id of theirs.
            QueueFullError: the queue has no room for them.
            InvalidRequestError: they can never fit into the KV pool, or into the queue.
        """
        check_ids([request.request_id for request in requests], self._table.live)
        self.check_capacity(len(requests))
        for request in requests:
            if self._verifier is not None and not fits(request, self.blocks):
                raise too_large(request, self.blocks)
        for request in requests:
            request.arrive(self._next_arrival)
            self._next_arrival += 1
            self._table.enqueue(request)
            self._counters.num_requests += 1
        self.trials.give_up()

    def finish(self, request_id: RequestId, reason: str) -> bool:
        """End a request (stop, length, abort). Unknown ids are fine.

        Returns:
            Whether it was live.
        """
        request = self._table.live.get(request_id)
        if request is None:
            return False
        self._table.end(request)
        self._counters.finished(reason)
        return True

    # -- workers ----------------------------------------------------------------------------

    def verifier_up(self, info: ModelInfo) -> list[Request]:
        """A verifier session began; it knows no rows.

        Returns:
            Live requests that its KV pool can never hold; the caller ends them (`too_large`).
        """
        self._verifier = info
        blocks = PrefixCache(info.num_blocks, info.block_size, is_on=self._has_prefix_cache)
        self._table.use(blocks, info.weights_fingerprint)
        self._costs.verifier_up(info)
        self.estimator.verifier_up(info)
        return [r for r in self._table.live.values() if not fits(r, self.blocks)]

    def step_failed(self) -> list[Request]:
        """The verifier failed at the step it was running: see `suspects`.

        Returns:
            Live requests that it has failed at too often; the caller ends them.
        """
        step = self._verifying.step
        return count_failure(step.requests.values()) if step is not None else []

    def verdict(self, *, has_died: bool) -> list[Request]:
        """A session begins after one that broke: see `deaths`.

        Returns:
            Live requests that verifier processes died of; the caller ends them.
        """
        return self._deaths.verdict(has_died=has_died)

    def verifier_lost(self, *, may_have_died: bool = False) -> None:
        """The verifier session ended: every live request starts over from its committed tokens.

        Args:
            may_have_died: It broke without a word; `verdict` will know.
        """
        self._deaths.lost(self._table.in_flight.values() if may_have_died else ())
        self._verifying.begun.clear()
        self._verifier = None
        self.trials.verifier_lost()
        self._table.start_over()
        for source in self.sources:
            self.drop(source)

    def serve(self, source: DraftSource) -> None:
        """The link of a draft source stands: it knows no rows, and drafts from now on."""
        self._add(source)
        self.sources.serve(source)

    def warm_up(self, source: DraftSource) -> None:
        """The link of a draft source stands: it shall take over once it has caught up."""
        self._add(source)
        self.sources.warm_up(source)

    def cut_over(self, old: DraftSource | None, new: DraftSource) -> None:
        """The warm source `new` takes the place of `old`, or drafts beside the others.

        Steps in flight still get their drafts from `old`: keep its link while `uses(old)`.
        """
        self.sources.cut_over(old, new)

    def drop(self, source: DraftSource) -> None:
        """A draft source is over. Its batches go to the others, or on with k = 0."""
        self.trials.source_lost(source.source_id)
        self._costs.drop_source(source.source_id)
        self.estimator.drop_source(source.source_id)
        self.sources.drop(source)
        self._table.forget_source(source.source_id)

    def _add(self, source: DraftSource) -> None:
        self._costs.add_source(source.source_id, source.model)
        self.estimator.add_source(source.source_id, source.model)

    def uses(self, source: DraftSource) -> bool:
        """Whether a step in flight waits for drafts of this source."""
        return any(step.source == source.source_id for step in self._table.in_flight.values())

    # -- steps ------------------------------------------------------------------------------

    def plan(self) -> Iterator[tuple[DraftPlan | None, VerifyPlan]]:
        """Plan every batch that is idle and has something to do.

        Yields:
            Plans to send now, the draft plan first. A plan without rows only opens and closes.
        """
        if self._verifier is None:
            return
        yield from self._planner.plan(self._verifier)
        if self.is_idle:
            yield from self.trials.plan(self.mode, self._verifier)

    def on_draft_result(self, result: DraftResult) -> None:
        """A drafter is done with a step.

        Raises:
            ProtocolError: that step was never planned, or what it says of rows makes no sense.
        """
        self._planner.check_planned(result.step_id)
        if self.trials.drafted(result):
            self.sources.answered(result)
            return
        step = self._table.in_flight.get(result.batch)
        if step is not None and (step.step_id, step.source) != (result.step_id, result.epoch):
            step = None  # the verifier's answer came first, or the step is void or another's
        if result.rows:
            requests = self._table.live if step is None else step.requests
            self.estimator.drafted(result, step, requests.values())
            note_behind(requests.values(), result)
        self._counters.drafted(result)
        self._costs.drafted(result, step)
        if self.sources.answered(result) or step is None:
            return
        step.is_drafted = True
        advance_all(step.requests.values(), Phase.DRAFTING, Event.DRAFTS_IN)
        self._verifying.mark()

    def on_step_begun(self, begun: StepBegun) -> None:
        """The verifier begins a step, behind those that it has begun and not answered.

        Raises:
            ProtocolError: that step was never planned.
        """
        self._planner.check_planned(begun.step_id)
        self._verifying.begin(begun)
        self._verifying.mark()

    def apply(self, result: VerifyResult, keep: Keep) -> list[Outcome]:
        """A step is verified: commit what is kept of each row, and end what ends.

        Args:
            result: Of the verifier.
            keep: Says how many of a row's new tokens the request keeps, and whether it ends with
                them. If it raises, its request ends, and no other.

        Returns:
            What became of each row whose request lives, or lived until now, in order. Prefill
            chunks are left out.

        Raises:
            ProtocolError: a row does not start from the committed length, or makes no sense. The
                step stays in flight: it is what the verifier failed at.
        """
        self._planner.check_planned(result.step_id)
        step = self._table.in_flight.get(result.batch)
        if step is None or step.step_id != result.step_id or self._verifier is None:
            self._counters.num_stale_results += len(result.rows)
            return []
        self._verifying.answer(step.batch)  # even if it makes no sense
        answer = read_answer(step, result, self._verifier.vocab_size)
        # Counted only now: an answer that made no sense leaves no trace.
        if answer.num_broken_rows:
            self._table.prefixes.withdraw(step.orphans)  # the row may be of one that has ended
        self._table.end_step(step.batch, step.step_id)
        self._verifying.end(step.batch)
        if step.is_trial:
            self.trials.verified(step, result.timing)
            return []
        self.sources.verified(step, result)
        self._counters.verified(answer, result.num_stale_drafts, step.num_behind)
        self._counters.num_stale_results += len(result.rows) - len(answer.rows)
        self._costs.verified(step, answer, result.timing)
        self.estimator.verified(step.source, answer)
        self.shaper.observe(step, answer, result.timing)
        self._verifying.mark()
        outcomes = [
            settle(request, row, keep) for request, row in answer.rows if row.token_ids or row.error
        ]
        if step.block_keys:
            for request, _ in answer.rows:
                self._table.prefixes.publish(request)
        for outcome in outcomes:
            self._counters.num_output_tokens += outcome.num_committed_tokens
            if outcome.reason is not None:
                if outcome.reason == ERROR:
                    self._table.prefixes.distrust(outcome.request)
                self.finish(outcome.request.request_id, outcome.reason)
        return outcomes

    # -- looking ----------------------------------------------------------------------------

    @property
    def verifier_info(self) -> ModelInfo | None:
        """The verifier's model, or None while there is none."""
        return self._verifier

    @property
    def costs(self) -> Costs:
        """What is known of steps. Read only."""
        return self._costs

    def set_mode(self, mode: Mode) -> None:
        """Change the mode while requests run: members move at their batches' sync points.

        Raises:
            ConfigError: there is no such policy, or it lacks a setting.
        """
        if mode.policy and mode.policy != self.decider.name:
            self.decider.set(mode.policy)
        self.shaper.set_mode(replace(mode, policy=self.decider.name))
        self._planner.reshape()

    def check(self) -> None:
        """Raise if an invariant is broken; cheap enough for tests and idle moments."""
        self._table.check()
