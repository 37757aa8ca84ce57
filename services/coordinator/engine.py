"""Drives the core: on every event that can unblock a batch, plans its next step and sends it.

Owns the core, and the text and stream of every live request. Runs on the event loop and never
computes or waits: workers' sessions, RPCs and the membership tasks call it. Every method leaves
the core planned as far as it can be.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from minedraft.api import Delta, Finished, RequestTiming, Usage
from minedraft.errors import MineDraftError, NonFiniteError, ProtocolError, StateError
from minedraft.services.coordinator.core.capacity import too_large
from minedraft.services.coordinator.core.outcome import ERROR, Kept
from minedraft.services.coordinator.text.output import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from minedraft.plans import DraftPlan, DraftResult, RowResult, VerifyPlan, VerifyResult
    from minedraft.services.coordinator.core.core import Core
    from minedraft.services.coordinator.core.draft_source import DraftSource
    from minedraft.services.coordinator.core.outcome import Outcome
    from minedraft.services.coordinator.core.request import Request
    from minedraft.services.coordinator.streams import EventStream
    from minedraft.services.coordinator.telemetry.observed import Observed
    from minedraft.services.coordinator.telemetry.timeline import Timeline
    from minedraft.services.coordinator.text.output import Finish, OutputProcessor
    from minedraft.types import ModelInfo, RequestId

log = structlog.get_logger(__name__)

_NO_PROGRESS = Progress(0, "")


@dataclass(slots=True)
class Sample:
    """One sequence on its way to a client."""

    request: Request
    processor: OutputProcessor
    stream: EventStream
    index: int = 0
    progress: Progress = _NO_PROGRESS
    """Result of its last tokens."""
    finish: Finish | None = None
    """Set from the start if the caller holds the whole output already, all but its end."""
    arrived_ns: int = 0
    admitted_ns: int = 0
    first_token_ns: int = 0
    last_tokens_ns: int = 0


class Engine:
    """See the module docstring.

    Args:
        core: The pure core.
        timeline: Where steps are recorded.
        observed: Sums of what the engine sees; None: they are not kept.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self,
        core: Core,
        timeline: Timeline,
        *,
        observed: Observed | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.core = core
        self.timeline = timeline
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved with what broke the engine; the service then stops."""
        self.on_broken: Callable[[DraftSource], None] = lambda _source: None
        """Called with a draft source whose link must be re-formed; `link_keeper` sets it."""
        self._observed = observed
        self._clock = clock
        self._samples: dict[RequestId, Sample] = {}
        self._send_draft: dict[int, Callable[[DraftPlan], None]] = {}
        """By draft source."""
        self._waiters: list[asyncio.Future[None]] = []
        self._send_verify: Callable[[VerifyPlan], None] | None = None

    # -- one step ---------------------------------------------------------------------------

    def on_verify_result(self, result: VerifyResult) -> None:
        """A batch's step is verified: commit it, deliver it, and start the batch's next step.

        Raises:
            ProtocolError: the answer makes no sense; the session must end.
        """
        if not self.core.trials.owns(result.step_id):
            self.timeline.verified(result)
            if self._observed is not None:
                self._observed.verified(result)
        for outcome in self.core.apply(result, self._walk):
            self._deliver(outcome)
        for source in self.core.sources.broken:
            self.on_broken(source)
        self.schedule()
        self._wake()

    def schedule(self) -> None:
        """Plan the next step of every batch that has none in flight, and send it to the workers.

        Every event that can unblock a batch ends here.
        """
        try:
            for draft, verify in self.core.plan():
                if not self.core.trials.owns(verify.step_id):
                    self.timeline.planned(draft, verify)
                self._note_admissions(verify)
                self._send(draft, verify)
        except Exception as err:
            log.exception("engine.failed")
            self.fail_all(StateError(f"the coordinator failed: {type(err).__name__}"))
            if not self.failure.done():
                self.failure.set_exception(err)

    def _walk(self, request: Request, row: RowResult) -> Kept:
        """Walk a row's tokens to the end of the output, if it is among them."""
        sample = self._samples[request.request_id]
        progress = sample.progress = sample.processor.push(row.token_ids)
        reason = progress.finish.reason.value if progress.finish is not None else None
        return Kept(progress.num_kept, reason)

    def _deliver(self, outcome: Outcome) -> None:
        """Put the result of a row on its request's stream."""
        request, row = outcome.request, outcome.row
        sample = self._samples[request.request_id]
        if row.error is not None:
            log.error("request.not_finite", request_id=request.request_id, length=row.base_len)
            self._fail(sample, _not_finite(row))
        elif outcome.failure is not None:
            self._give_up(sample, outcome.failure)
        else:
            try:
                self._push(sample, row)
            except Exception as err:  # noqa: BLE001 it is logged, and its stream says so
                self._give_up(sample, err)

    def _push(self, sample: Sample, row: RowResult) -> None:
        progress = sample.progress
        self._note_tokens(sample)
        kept = row.token_ids[: progress.num_kept]
        logprobs = row.logprobs[: progress.num_kept]
        sample.stream.push(Delta(sample.index, kept, progress.text, logprobs))
        if progress.finish is not None:
            del self._samples[sample.request.request_id]
            self._report(sample, progress.finish)

    # -- requests ---------------------------------------------------------------------------

    def submit(self, samples: Sequence[Sample]) -> None:
        """Queue the samples of one request: all of them or none.

        Raises:
            CapacityError: the queue is full.
            RequestError: an id is in use, or they can never fit.
        """
        self.core.submit(*(sample.request for sample in samples if sample.finish is None))
        now = self._clock()
        for sample in samples:
            sample.arrived_ns = now
            if sample.finish is None:
                self._samples[sample.request.request_id] = sample
            else:
                self._report(sample, sample.finish)
        self.schedule()

    def abort(self, request_id: RequestId) -> bool:
        """End a request with reason ABORT. Unknown and finished ids are fine.

        Returns:
            Whether it was live.
        """
        sample = self._samples.get(request_id)
        if sample is None:
            return False
        progress = sample.processor.abort()
        if progress.text:
            sample.stream.push(Delta(sample.index, (), progress.text))
        self._end(sample, progress.finish)
        self.schedule()
        return True

    # -- workers ----------------------------------------------------------------------------

    def verifier_up(
        self, info: ModelInfo, send: Callable[[VerifyPlan], None], *, is_new: bool = False
    ) -> None:
        """A verifier session began.

        Args:
            info: Its model.
            send: Takes plans for it.
            is_new: It is another process than the one before it. A request that several died
                with is given up.
        """
        for request in self.core.verdict(has_died=is_new):
            log.error("request.given_up", request_id=request.request_id)
            err = ProtocolError(
                f"{request.num_deaths} verifier processes ended at a step with this request in "
                "it, the last one with this request alone"
            )
            self._fail(self._samples[request.request_id], err)
        self._send_verify = send
        for request in self.core.verifier_up(info):
            self._fail(self._samples[request.request_id], too_large(request, self.core.blocks))
        self.schedule()

    def verifier_lost(self, *, by_failure: bool = False, may_have_died: bool = False) -> None:
        """The verifier session ended; live requests wait for the next one.

        Args:
            by_failure: It failed at its work or never answered, rather than going away. A request
                it does so at each of several times is given up: it must not take everybody else
                along for ever.
            may_have_died: It broke without a word: if another process comes next, this one died.
        """
        for request in self.core.step_failed() if by_failure else ():
            log.error("request.given_up", request_id=request.request_id)
            err = ProtocolError(
                f"the verifier failed {request.num_failed_steps} times at a step with this "
                "request in it"
            )
            self._fail(self._samples[request.request_id], err)
        self._send_verify = None
        self._send_draft.clear()
        self.timeline.forget_plans()
        self.core.verifier_lost(may_have_died=may_have_died)
        self._wake()

    def serve(self, source: DraftSource, send: Callable[[DraftPlan], None]) -> None:
        """The link of a draft source stands: it drafts from now on."""
        self._send_draft[source.source_id] = send
        self.core.serve(source)
        self.schedule()

    def warm_up(self, source: DraftSource, send: Callable[[DraftPlan], None]) -> None:
        """The link of a draft source stands: it shall take over once it has caught up."""
        self._send_draft[source.source_id] = send
        self.core.warm_up(source)
        self.schedule()

    def cut_over(self, old: DraftSource | None, new: DraftSource) -> None:
        """A warm source takes the place of `old`, or drafts beside the others.

        Steps in flight still get their drafts from `old`: keep its link while the core `uses` it.
        """
        self.core.cut_over(old, new)
        self.schedule()

    def drop(self, source: DraftSource) -> None:
        """A draft source is over. Without another one k = 0 from now on."""
        self._send_draft.pop(source.source_id, None)
        self.timeline.forget_drafts(source.source_id)
        self.core.drop(source)
        self.schedule()
        self._wake()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds that only plans and answers can change."""
        while not holds():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def on_draft_result(self, result: DraftResult) -> None:
        """The drafter is done with a step.

        Raises:
            ProtocolError: the answer makes no sense; the session must end.
        """
        is_warming = any(s.source_id == result.epoch for s in self.core.sources.warming)
        is_trial = self.core.trials.owns(result.step_id)
        if not is_warming and not is_trial:
            self.timeline.drafted(result)
            if self._observed is not None:
                self._observed.drafted(result)
        self.core.on_draft_result(result)
        if is_warming or is_trial:
            self.schedule()
        self._wake()

    def fail_all(self, err: MineDraftError) -> None:
        """End every stream with an error."""
        for sample in list(self._samples.values()):
            self._fail(sample, err)

    # -- inside -----------------------------------------------------------------------------

    def _send(self, draft: DraftPlan | None, verify: VerifyPlan) -> None:
        if draft is not None and draft.epoch in self._send_draft:
            self._send_draft[draft.epoch](draft)
        if self._send_verify is not None and (verify.rows or verify.closes):
            self._send_verify(verify)

    def _fail(self, sample: Sample, err: MineDraftError) -> None:
        del self._samples[sample.request.request_id]
        self.core.finish(sample.request.request_id, ERROR)
        sample.stream.fail(err)

    def _give_up(self, sample: Sample, err: Exception) -> None:
        """End a request whose state is not to be trusted, wherever its commit was.

        Half of it is done: to go on would give its caller another output, without a word.
        """
        request_id = sample.request.request_id
        log.error("commit.failed", request_id=request_id, exc_info=err)
        self._samples.pop(request_id, None)
        self.core.finish(request_id, ERROR)
        sample.stream.fail(StateError(f"the coordinator failed: {type(err).__name__}"))

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _note_tokens(self, sample: Sample) -> None:
        """Note when a sample got tokens."""
        now, observed = self._clock(), self._observed
        if not sample.first_token_ns:
            sample.first_token_ns = now
            if observed is not None:
                request = sample.request
                num_prompt_tokens = len(request.prompt_token_ids)
                ttft_ns = now - sample.arrived_ns
                observed.first_token(ttft_ns, num_prompt_tokens, request.num_cached_tokens)
        elif observed is not None:
            observed.next_tokens(now - sample.last_tokens_ns)
        sample.last_tokens_ns = now

    def _note_admissions(self, verify: VerifyPlan) -> None:
        if not verify.opens:
            return
        opened = {row.row_id for row in verify.opens}
        for sample in self._samples.values():
            if not sample.admitted_ns and sample.request.row_id in opened:
                sample.admitted_ns = self._clock()

    def _end(self, sample: Sample, finish: Finish | None) -> None:
        if finish is None:
            raise StateError(f"request {sample.request.request_id}: ended without a reason")
        request = sample.request
        del self._samples[request.request_id]
        self.core.finish(request.request_id, finish.reason.value)
        self._report(sample, finish)

    def _report(self, sample: Sample, finish: Finish) -> None:
        """Put the terminal event of a sample on its stream."""
        request = sample.request
        now = self._clock()
        finished = Finished(
            index=sample.index,
            reason=finish.reason,
            stop_token_id=finish.stop_token_id,
            stop_string=finish.stop_string,
            usage=Usage(
                len(request.prompt_token_ids),
                len(request.output_token_ids),
                request.num_cached_tokens,
            ),
            speculation=request.stats.total(),
            timing=RequestTiming(
                queue_ns=max(sample.admitted_ns - sample.arrived_ns, 0),
                ttft_ns=max(sample.first_token_ns - sample.arrived_ns, 0),
                e2e_ns=now - sample.arrived_ns,
            ),
        )
        if self._observed is not None:
            self._observed.finished(finished, request.max_tokens)
        sample.stream.finish(finished)


def _not_finite(row: RowResult) -> NonFiniteError:
    return NonFiniteError(
        f"the target's logits after the request's {row.base_len} tokens are not finite (NaN or "
        "infinity): its weights have no numbers for one of them, or overflow in its dtype"
    )
