"""Handles the calls of callers and operators. Values in, values out; no protobuf."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from minedraft import log as logs
from minedraft.admin import BatchStatus, ServerInfo, ShapeStatus, Status, TargetInfo
from minedraft.api import Finished, Started
from minedraft.errors import (
    ConfigError,
    DrainingError,
    DuplicateRequestError,
    InvalidRequestError,
    PreconditionError,
    SupersededError,
    WorkerUnavailableError,
)
from minedraft.plans import MAX_BATCHES
from minedraft.security.address import check_dial
from minedraft.security.caller import ANYBODY
from minedraft.services.coordinator.config import check_assignment
from minedraft.services.coordinator.intake import Intake, without_tokenizer
from minedraft.services.coordinator.ownership import Owner
from minedraft.services.coordinator.text.tokenization import Tokenization
from minedraft.services.coordinator.workers.swap import Swapper
from minedraft.transport.fields import shown
from minedraft.types import NO_DEFAULTS, SHAPES, FinishReason, Mode
from minedraft.validation import MAX_SAMPLES, validate_abort
from minedraft.worker.memory import resident_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from minedraft.admin import Span, SwapOrder, SwapResult
    from minedraft.api import Event, GenerationRequest, TokenizeOrder, TokenizerInfo
    from minedraft.plans import WorkerIdentity
    from minedraft.security.caller import Caller
    from minedraft.services.coordinator.config import CoordinatorConfig
    from minedraft.services.coordinator.engine import Engine, Sample
    from minedraft.services.coordinator.streams import EventStream
    from minedraft.services.coordinator.text.pool import Texts
    from minedraft.services.coordinator.text.tokenizer import Tokenizer
    from minedraft.services.coordinator.workers.membership import Membership
    from minedraft.types import ModelInfo, SamplingDefaults

log = structlog.get_logger(__name__)

_ANY_MODEL_LEN = 1 << 20
Render = Callable[[Callable[[], Awaitable[Status]]], Awaitable[str]]
"""Makes text of the status that it reads."""


@dataclass(frozen=True, slots=True)
class _LiveRequest:
    """A request whose stream has not ended."""

    owner: Owner
    samples: Sequence[Sample]
    stream: EventStream


class Handler:
    """See `transport.public_service.PublicHandler`."""

    def __init__(
        self,
        *,
        config: CoordinatorConfig,
        engine: Engine,
        membership: Membership,
        identity: WorkerIdentity,
        tokenizer: Tokenizer | None,
        texts: Texts | None = None,
        sampling_defaults: SamplingDefaults = NO_DEFAULTS,
        render: Render | None = None,
    ) -> None:
        self._config = config
        self._engine = engine
        self._membership = membership
        self._identity = identity
        self._tokenizer = tokenizer
        self._texts = texts
        self._tokenization = Tokenization(tokenizer, texts)
        self._sampling_defaults = sampling_defaults
        self._render = render
        self._walk = asyncio.Lock()
        self._swapper = Swapper(membership)
        self._live: dict[str, _LiveRequest] = {}
        """By the caller's request id."""
        self._draining = False
        self._cut_off: set[str] = set()
        """Requests that the end of the drain cut off."""
        self._empty = asyncio.Event()
        """Set while no request is live."""
        self._empty.set()

    @property
    def is_draining(self) -> bool:
        """Whether new requests are refused."""
        return self._draining

    async def drain(self) -> None:
        """Refuse new requests; let running ones finish for `grace_s`, then cut them off.

        Their streams end with `DrainingError`, not as if somebody had aborted them: a client goes
        on where they ended as soon as there is a coordinator again.
        """
        self._draining = True
        try:
            async with asyncio.timeout(self._config.grace_s):
                await self._empty.wait()
        except TimeoutError:
            for request_id, live in list(self._live.items()):
                if self._abort(live.samples):
                    self._cut_off.add(request_id)
            log.warning("drain.cut_off", num_requests=len(self._cut_off))

    async def generate(
        self, request: GenerationRequest, caller: Caller = ANYBODY
    ) -> AsyncIterator[Event]:
        """Yield the events of one request. Leaving the iterator aborts it.

        Args:
            request: What is asked.
            caller: Whose it is.

        Raises:
            MineDraftError: refused, failed on the way, or superseded by its caller's next call.
        """
        if request.debug is not None and not self._config.debug_requests:
            raise InvalidRequestError(
                "debug: this coordinator takes no debug options; for benchmarks and tests start it "
                "with --debug-requests",
                field="debug",
            )
        self._refuse_if_draining()
        # Not more than a valid n: an invalid one must not look like a queue that is full for now.
        self._engine.core.check_capacity(min(request.sampling.n, MAX_SAMPLES))
        if self._tokenizer is None and request.token_ids is None:
            raise without_tokenizer()  # now: to wait for a verifier would not help
        intake = Intake(
            self._tokenizer,
            self._texts,
            self._target(),
            self._config.max_draft_tokens,
            self._walk,
        )
        request_id, seed, num_prompt_tokens, samples, stream = await intake.accept(request)
        self._refuse_if_draining()  # the drain may have begun meanwhile
        self._supersede(request_id, caller, request.resume_token)
        self._engine.submit(samples)
        live = _LiveRequest(Owner(caller, request.resume_token), samples, stream)
        self._live[request_id] = live
        self._empty.clear()
        try:
            yield Started(request_id, seed, num_prompt_tokens)
            async for event in stream:
                if request_id in self._cut_off and _is_abort(event):
                    raise DrainingError("the service shut down before this answer was complete")
                yield self._tokenization.spelled(event)
        finally:
            # Otherwise another call took over, and the ids of these samples are its own now.
            if self._live.get(request_id) is live:
                del self._live[request_id]
                self._abort(samples)
            if not self._live:
                self._empty.set()

    def max_model_len(self) -> int:
        """Return the most tokens of a sequence; without a verifier, of any sequence."""
        model = self._membership.model
        return model.max_model_len if model is not None else _ANY_MODEL_LEN

    def abort(
        self,
        request_ids: Sequence[str],
        resume_tokens: Sequence[bytes] = (),
        caller: Caller = ANYBODY,
    ) -> int:
        """Abort requests of the caller; return how many were live.

        A request of another caller counts as unknown: callers may guess ids. An id whose client
        has just left is no error.
        """
        validate_abort(request_ids, resume_tokens)
        shown: dict[str, list[bytes]] = {request_id: [] for request_id in request_ids}
        for request_id, resume_token in zip(request_ids, resume_tokens, strict=False):
            shown[request_id].append(resume_token)
        found = ((self._live.get(request_id), tokens) for request_id, tokens in shown.items())
        return sum(
            self._abort(live.samples)
            for live, tokens in found
            if live is not None and live.owner.may_abort(caller, tokens)
        )

    def target_info(self) -> TargetInfo:
        """The target model.

        Raises:
            WorkerUnavailableError: no verifier has joined yet.
        """
        has_template = self._tokenizer is not None and self._tokenizer.has_chat_template
        return TargetInfo(self._target(), has_template, self._sampling_defaults)

    async def tokenize(self, order: TokenizeOrder) -> tuple[int, ...]:
        """See `Tokenization.tokenize`."""
        return await self._tokenization.tokenize(order)

    async def detokenize(self, token_ids: tuple[int, ...], *, skip_special_tokens: bool) -> str:
        """See `Tokenization.detokenize`."""
        return await self._tokenization.detokenize(
            token_ids, skip_special_tokens=skip_special_tokens
        )

    def tokenizer_info(self) -> TokenizerInfo:
        """See `Tokenization.info`."""
        return self._tokenization.info()

    def server_info(self) -> ServerInfo:
        """The server."""
        return ServerInfo(
            identity=self._identity,
            mode=self._engine.core.mode,
            max_waiting_requests=self._config.max_waiting_requests,
            acceptance=self._membership.acceptance,
            takes_debug_requests=self._config.debug_requests,
        )

    async def status(self) -> Status:
        """The state of everything."""
        rss_bytes = await asyncio.to_thread(resident_bytes)
        core = self._engine.core
        return Status(
            identity=self._identity,
            mode=core.mode,
            batches=tuple(
                BatchStatus(batch, core.phases(batch), core.in_flight_step(batch))
                for batch in core.batch_numbers
            ),
            num_waiting=core.num_waiting,
            num_running=core.num_running,
            num_blocks=core.blocks.num_blocks,
            num_blocks_used=core.blocks.num_used,
            num_blocks_cached=core.blocks.num_cached,
            workers=self._membership.status(),
            counters=core.counters.snapshot(),
            draining=self._draining,
            rss_bytes=rss_bytes,
            num_log_lines_dropped=logs.num_dropped(),
            swaps=self._swapper.status,
            costs=core.trials.status(),
            policy=core.decider.status(),
            shape=ShapeStatus(*core.shaper.shape),
            candidates=tuple(
                ShapeStatus(*shape, tokens_per_s)
                for shape, tokens_per_s in core.shaper.figures.items()
            ),
            estimates=core.estimator.status(),
        )

    def set_mode(self, mode: Mode) -> None:
        """Change the mode while requests run.

        Raises:
            InvalidRequestError: a number is out of range, the rules of assignment have no such
                shape, or this service has no such policy.
        """
        _range("num_batches", mode.num_batches, 1, MAX_BATCHES)
        _range("max_batch_size", mode.max_batch_size, 1, self._config.max_rows)
        _range("num_draft_tokens", mode.num_draft_tokens, 0, self._config.max_draft_tokens)
        if mode.shape not in SHAPES:
            raise InvalidRequestError(
                f"shape={shown(mode.shape)}, want one of {', '.join(SHAPES)}", field="shape"
            )
        try:
            check_assignment(self._config.assignment, mode.num_batches, mode.shape)
        except ConfigError as err:
            raise InvalidRequestError(str(err), field="shape") from None
        try:
            self._engine.core.decider.check(
                mode,
                acceptance=self._membership.acceptance,
                max_draft_tokens=self._config.max_draft_tokens,
            )
        except ConfigError as err:
            raise InvalidRequestError(str(err), field="policy") from None
        self._engine.core.set_mode(mode)
        self._engine.schedule()

    async def swap_drafter(self, order: SwapOrder, timeout_s: float | None = None) -> SwapResult:
        """Change the drafter while requests run.

        Args:
            order: What to draft with.
            timeout_s: How long the caller will wait; None: as long as it takes.

        Raises:
            InvalidRequestError: an address is none.
            MineDraftError: see `Swapper.swap`.
        """
        for name in ("address", "replace"):
            address = getattr(order, name)
            if address:
                _check_address(name, address)
        return await self._swapper.swap(order, timeout_s)

    def spans(self, max_spans: int, since_unix_ns: int) -> tuple[Span, ...]:
        """Recent steps."""
        return self._engine.timeline.spans(max_spans=max_spans, since_unix_ns=since_unix_ns)

    async def metrics(self) -> str:
        """Return the metrics, as Prometheus reads them.

        Raises:
            PreconditionError: there are none.
        """
        if self._render is None:
            raise PreconditionError("the coordinator runs with --metrics none: it has none to tell")
        return await self._render(self.status)

    def _supersede(self, request_id: str, caller: Caller, resume_token: bytes) -> None:
        """End a live request of this id, so that its successor can begin.

        Raises:
            DuplicateRequestError: a request of another caller has the id.
        """
        live = self._live.get(request_id)
        if live is None:
            return
        if not live.owner.may_supersede(caller, resume_token):
            raise DuplicateRequestError(f"request_id {request_id!r} is in use")
        del self._live[request_id]
        self._abort(live.samples)
        # Its reader lost the connection and calls anew; should it read on, it must not take the
        # end for an answer's.
        live.stream.fail(
            SupersededError(f"request_id {request_id!r}: its caller continued it in another call")
        )

    def _refuse_if_draining(self) -> None:
        if self._draining:
            raise DrainingError("the service is shutting down; try another one, or later")

    def _target(self) -> ModelInfo:
        model = self._membership.model
        if model is None:
            verifier = self._membership.verifier
            why = verifier.last_error or "none has joined yet"
            raise WorkerUnavailableError(
                f"no verifier at {verifier.address}: {why}; start one with `minedraft verifier`, "
                "or name it with the coordinator's --verifier"
            )
        return model

    def _abort(self, samples: Sequence[Sample]) -> bool:
        aborted = [self._engine.abort(sample.request.request_id) for sample in samples]
        return any(aborted)


def _is_abort(event: Event) -> bool:
    return isinstance(event, Finished) and event.reason is FinishReason.ABORT


def _check_address(name: str, address: str) -> None:
    try:
        check_dial(name, address)
    except ConfigError as err:
        raise InvalidRequestError(str(err), field=name) from None


def _range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidRequestError(f"{name}={value}, want {low}..{high}", field=name)
