"""Stands where the coordinator's engine stands: the real core, simulated workers, virtual time.

Every method that a driver may call is an event that the engine has too, and each ends with the core
planned as far as it can be.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from minedraft.errors import InvalidRequestError, QueueFullError
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.draft_source import DraftSource
from minedraft.services.coordinator.core.outcome import Kept
from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.telemetry.timeline import Timeline
from minedraft.sim.devices import Devices
from minedraft.sim.drafter import SimDrafter
from minedraft.sim.events import Events
from minedraft.sim.outputs import VOCAB_SIZE, Output, prompt
from minedraft.sim.verifier import SimVerifier
from minedraft.types import ModelInfo, RequestId, RowParams, Speculation

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.plans import (
        DraftPlan,
        DraftResult,
        RowResult,
        StepBegun,
        VerifyPlan,
        VerifyResult,
    )
    from minedraft.services.coordinator.core.outcome import Outcome
    from minedraft.sim.load import Arrival, Load
    from minedraft.sim.setup import Setup
    from minedraft.sim.verifier import Drafts

RELINK_NS: Final = 200_000_000
"""From the loss of a link to the next one."""
MAX_SPANS: Final = 20_000
_DRAFTER_KIND: Final = "simulated"


@dataclass(slots=True)
class Served:
    """One sequence and what became of it; times are virtual ns."""

    arrival: Arrival
    arrived_ns: int
    request: Request | None
    """None: it has ended."""
    num_output_tokens: int = 0
    first_ns: int = 0
    """Of its first token; 0: it has none."""
    last_ns: int = 0
    """Of its last tokens, or of its end."""
    longest_gap_ns: int = 0
    """Between two deltas."""
    reason: str = ""
    """Why it ended; empty: it has not."""


class Simulation:
    """See the module docstring.

    Args:
        setup: What is simulated.
        load: Requests.
        on_plans: Told of the plans of each step as they leave.
        on_commit: Told what became of each row.
    """

    def __init__(
        self,
        setup: Setup,
        load: Load,
        *,
        on_plans: Callable[[DraftPlan | None, VerifyPlan], None] = lambda _draft, _verify: None,
        on_commit: Callable[[VerifyResult, Outcome], None] = lambda _result, _outcome: None,
    ) -> None:
        self.setup = setup
        self.events = Events()
        self.core = Core(
            setup.mode,
            prefill_budget_tokens=setup.prefill_budget_tokens,
            prefill_stall=setup.prefill_stall,
            max_waiting=setup.max_waiting,
            prefix_cache=setup.prefix_cache,
            assignment=setup.assignment,
            trial_s=setup.trial_s,
        )
        self.timeline = Timeline(MAX_SPANS)
        self.served: dict[RequestId, Served] = {}
        """By id, in order of arrival."""
        self.num_refused = 0
        """Requests that found the queue full, or can never fit."""
        self._on_plans = on_plans
        self._on_commit = on_commit
        self._outputs: dict[int, Output] = {}
        self._devices = Devices(self.events)
        self.verifier = SimVerifier(
            self.events,
            self._devices,
            setup.costs,
            self._outputs,
            on_begun=lambda begun: self._hop(partial(self._on_begun, begun)),
            on_result=lambda result: self._hop(partial(self._on_verify_result, result)),
        )
        self.drafters: dict[int, SimDrafter] = {}
        """By draft source."""
        self._sources: dict[int, DraftSource] = {}
        self._next_source = count(1)
        self._next_seed = count(1)
        self._due: deque[Arrival] = deque()
        """Requests of a closed loop that wait for a place."""
        self._num_open = 0
        self._concurrency = load.concurrency
        self._target = _model(setup, num_blocks=setup.num_blocks)
        self.core.verifier_up(self._target)
        for _ in range(setup.num_drafters):
            self.add_drafter()
        self.events.run(goes_on=lambda: True)  # trial steps, if any
        self.begin_ns = self.events.now_ns
        """When the load begins."""
        self.verifier.busy_ns = 0
        for drafter in self.drafters.values():
            drafter.busy_ns = 0
        for arrival in load.arrivals:
            self.events.at(self.begin_ns + arrival.arrival_ns, partial(self._arrive, arrival))

    def run(
        self, *, max_steps: int | None = None, after_each: Callable[[], None] | None = None
    ) -> None:
        """Let time pass until nothing is left to do.

        Args:
            max_steps: End after so many verify steps; None: never.
            after_each: Called after each event.
        """
        counters = self.core.counters
        self.events.run(
            goes_on=lambda: max_steps is None or counters.num_steps < max_steps,
            after_each=after_each,
        )

    @property
    def duration_ns(self) -> int:
        """Virtual time from the begin of the load to the last commit or end."""
        begin_ns = self.begin_ns
        return max((each.last_ns for each in self.served.values()), default=begin_ns) - begin_ns

    # -- requests ---------------------------------------------------------------------------

    def submit(self, arrival: Arrival, name: str = "") -> None:
        """A request arrives.

        Args:
            arrival: What it is.
            name: Its id; empty: its number.
        """
        if arrival.num_prompt_tokens + arrival.max_tokens > self._target.max_model_len:
            self.num_refused += 1  # as the intake does
            return
        first = next(self._next_seed)
        seeds = (first, *(next(self._next_seed) for _ in range(arrival.num_samples - 1)))
        tokens = prompt(
            first,
            arrival.num_prompt_tokens,
            prefix=arrival.prefix,
            num_prefix=arrival.num_prefix_tokens,
        )
        requests = [
            Request(
                RequestId(_name(name or str(first), index)),
                tokens,
                RowParams(seed=seed),
                arrival.max_tokens,
                speculation=Speculation(arrival.num_draft_tokens),
            )
            for index, seed in enumerate(seeds)
        ]
        try:
            self.core.submit(*requests)
        except (QueueFullError, InvalidRequestError):
            self.num_refused += 1
            return
        for seed, request in zip(seeds, requests, strict=True):
            self._outputs[seed] = Output(self.setup.acceptance, seed, len(tokens), self.setup.seed)
            self.served[request.request_id] = Served(arrival, self.events.now_ns, request)
        self._num_open += len(requests)
        self.schedule()

    def abort(self, request_id: RequestId) -> None:
        """A caller leaves. Unknown and finished ids are fine."""
        request = self.core.requests.get(request_id)
        if request is not None and self.core.finish(request_id, "abort"):
            self._ended(request, "abort")
            self.schedule()

    # -- workers ----------------------------------------------------------------------------

    def add_drafter(self) -> DraftSource:
        """One more drafter is linked."""
        source = DraftSource(
            next(self._next_source), _model(self.setup, num_blocks=0, kind=_DRAFTER_KIND)
        )
        self._sources[source.source_id] = source
        self.drafters[source.source_id] = SimDrafter(
            self.events,
            self._devices,
            self.setup.costs,
            self._outputs,
            max_catch_up_tokens=self.setup.max_catch_up_tokens,
            on_packet=self._send_packet,
            on_result=lambda result: self._hop(partial(self._on_draft_result, result)),
        )
        self.core.serve(source)
        self.schedule()
        return source

    def lose_drafter(self, source: DraftSource) -> None:
        """A drafter and its link are gone."""
        del self._sources[source.source_id]
        self.drafters[source.source_id].forget()
        self.verifier.forget(source.source_id)
        self.timeline.forget_drafts(source.source_id)
        self.core.drop(source)
        self.schedule()

    # -- steps ------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Plan the next step of every batch that has none in flight, and send it."""
        for draft, verify in self.core.plan():
            if not self.core.trials.owns(verify.step_id):
                self.timeline.planned(draft, verify)
                self._on_plans(draft, verify)
            if draft is not None and draft.epoch in self._sources:
                self._hop(partial(self.drafters[draft.epoch].put, draft))
            if verify.rows or verify.closes:
                self._hop(partial(self.verifier.put, verify))

    def _hop(self, call: Callable[[], None]) -> None:
        self.events.after(self.setup.hop_ns, call)

    def _send_packet(self, source: int, step_id: int, drafts: Drafts) -> None:
        if source in self._sources:
            self.events.after(
                self.setup.link_ns, partial(self.verifier.receive, source, step_id, drafts)
            )

    def _on_begun(self, begun: StepBegun) -> None:
        self.core.on_step_begun(begun)

    def _on_draft_result(self, result: DraftResult) -> None:
        if result.epoch not in self._sources:
            return  # what its session would have brought went with it
        is_trial = self.core.trials.owns(result.step_id)
        if not is_trial:
            self.timeline.drafted(result)
        self.core.on_draft_result(result)
        if is_trial:
            self.schedule()

    def _on_verify_result(self, result: VerifyResult) -> None:
        if not self.core.trials.owns(result.step_id):
            self.timeline.verified(result)
        for outcome in self.core.apply(result, self._keep):
            self._commit(result, outcome)
        for source in self.core.sources.broken:
            self.lose_drafter(source)
            self.events.after(RELINK_NS, self._relink)
        self.schedule()

    def _relink(self) -> None:
        self.add_drafter()

    @staticmethod
    def _keep(request: Request, row: RowResult) -> Kept:
        left = request.max_len - request.num_tokens
        num_new = len(row.token_ids)
        return Kept(num_new) if num_new < left else Kept(left, "length")

    def _commit(self, result: VerifyResult, outcome: Outcome) -> None:
        request, now_ns = outcome.request, self.events.now_ns
        served = self.served[request.request_id]
        if outcome.failure is not None:
            raise outcome.failure  # a bug: the simulated verifier answers as planned
        if not served.first_ns:
            served.first_ns = now_ns
        else:
            served.longest_gap_ns = max(served.longest_gap_ns, now_ns - served.last_ns)
        served.last_ns = now_ns
        served.num_output_tokens = len(request.output_token_ids)
        self._on_commit(result, outcome)
        if outcome.reason is not None:
            self._ended(request, outcome.reason)
            return
        leaves = served.arrival.abort_after
        if leaves is not None and served.num_output_tokens >= leaves:
            self.events.at(now_ns, partial(self.abort, request.request_id))

    def _arrive(self, arrival: Arrival) -> None:
        if self._concurrency is not None and self._num_open >= self._concurrency:
            self._due.append(arrival)
        else:
            self.submit(arrival)

    def _ended(self, request: Request, reason: str) -> None:
        served = self.served[request.request_id]
        served.reason, served.last_ns, served.request = reason, self.events.now_ns, None
        del self._outputs[request.params.seed]
        self._num_open -= 1
        if self._due:
            self.events.after(self.setup.client_ns, partial(self._arrive, self._due.popleft()))


def _name(name: str, sample: int) -> str:
    return f"{name}.{sample}" if sample else name


def _model(setup: Setup, *, num_blocks: int, kind: str = "") -> ModelInfo:
    return ModelInfo(
        name="simulated",
        vocab_size=VOCAB_SIZE,
        max_model_len=setup.max_model_len,
        tokenizer_fingerprint="",
        dtype="simulated",
        block_size=setup.block_size,
        num_blocks=num_blocks,
        drafter_kind=kind,
    )
