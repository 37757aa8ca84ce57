"""Continues a broken stream: same request, same seed, the tokens that the client holds.

Generation is safe to retry by construction: a retry never repeats or changes anything that came; it
continues where the deltas ended, text included, because text is a function of the tokens. With
coupled acceptance, the default, the rest is what it would have been, because the output is a
function of model, prompt, parameters and seed; with rejection it is another draw from the same
distribution.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from minedraft.api import Delta, Event, Finished, GenerationRequest, ResumedSample, Started
from minedraft.errors import CapacityError, ProtocolError, WorkerUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from minedraft.errors import MineDraftError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a client retries while the coordinator is away, full or draining.

    Retries stop at the request's own deadline in any case.
    """

    patience_s: float = 60.0
    """Longest time from the first failure since the last event before it gives up; 0: never retry.
    A stream that is just quiet, in the queue say, uses up none of it."""
    first_delay_s: float = 0.1
    """Pause before the first retry; doubles with each retry."""
    max_delay_s: float = 2.0
    """Longest pause, unless the server asks for a longer one."""
    on_wait: Callable[[MineDraftError], None] | None = None
    """Called before each pause with the failure, on the client's own thread."""
    only_after_start: bool = False
    """Raise what fails before `Started` at once. Nothing is lost then, and the caller may have a
    better way to wait: an HTTP server tells its own client."""


NO_RETRIES = RetryPolicy(patience_s=0.0)
_MAX_DOUBLINGS = 64
"""Most doublings: far beyond the longest pause, and 2.0**1024 is no float."""


@dataclass(slots=True)
class _Held:
    """The tokens of one sample so far."""

    token_ids: list[int] = field(default_factory=list)
    is_finished: bool = False


@dataclass(slots=True)
class _Failures:
    """Counts the failures since the last event."""

    policy: RetryPolicy
    count: int = 0
    first: float = 0.0
    """Time of the first failure."""

    def add(self, err: Exception, now: float, jitter: float) -> float:
        """Count one failure and return the pause after it."""
        if not self.count:
            self.first = now
        doubled = self.policy.first_delay_s * 2.0 ** min(self.count, _MAX_DOUBLINGS)
        self.count += 1
        delay_s = min(doubled, self.policy.max_delay_s) * (0.5 + jitter / 2)
        if isinstance(err, CapacityError):  # who comes before that is only sent away again
            delay_s = max(delay_s, err.retry_after_s * (1.0 + jitter / 2))
        return delay_s

    def out_of_patience(self, then: float) -> bool:
        return then - self.first >= self.policy.patience_s


async def resuming(
    request: GenerationRequest,
    open_call: Callable[[GenerationRequest, float | None], AsyncGenerator[Event, None]],
    *,
    policy: RetryPolicy,
    timeout_s: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> AsyncGenerator[Event, None]:
    """Yield the events of a request, over as many calls as necessary.

    Args:
        request: What was asked.
        open_call: Starts one call, given its deadline in seconds (None: none).
        policy: When to retry.
        timeout_s: Deadline of the whole; None: none.
        clock: Monotonic seconds.
        sleep: Waits.
        jitter: Uniform in [0, 1); retries of many clients must not come in step.

    Yields:
        One gapless sequence: `Started` once, deltas without repeats, one `Finished` a sample.

    Raises:
        MineDraftError: not worth a retry, or patience or deadline ran out.
    """
    held = [_Held() for _ in range(max(request.sampling.n, 1))]
    started: Started | None = None
    began = clock()
    failures = _Failures(policy)
    while True:
        left_s = None if timeout_s is None else timeout_s - (clock() - began)
        is_continued = started is not None
        # Before it started there is nothing to go on from: a live request of this id is another
        # caller's, or this one whose beginning was lost on the way, which the resume_token tells.
        call = request if started is None else _continued(request, started, held)
        try:
            async with aclosing(open_call(call, left_s)) as events:
                async for event in events:
                    failures.count = 0
                    if isinstance(event, Started):
                        if is_continued:
                            _check_same(call.request_id, started, event)
                            is_continued = False  # a second one in this call is passed on, wrong
                            continue
                        started = event
                    else:
                        _note(held, event)
                    yield event
        except (WorkerUnavailableError, CapacityError) as err:
            if started is None and policy.only_after_start:
                raise
            now = clock()
            delay_s = failures.add(err, now, jitter())
            out_of_time = timeout_s is not None and now + delay_s - began >= timeout_s
            if out_of_time or failures.out_of_patience(now + delay_s):
                raise
            if policy.on_wait is not None:
                policy.on_wait(err)
            await sleep(delay_s)
        else:
            return


def _continued(
    request: GenerationRequest, started: Started, held: list[_Held]
) -> GenerationRequest:
    return replace(
        request,
        request_id=started.request_id,
        sampling=replace(request.sampling, seed=started.seed),
        resumed=_held(held),
    )


def _held(held: list[_Held]) -> tuple[ResumedSample, ...]:
    return tuple(
        ResumedSample(index, tuple(sample.token_ids), sample.is_finished)
        for index, sample in enumerate(held)
    )


def _check_same(request_id: str, first: Started | None, again: Started) -> None:
    if first is None or (first.seed, first.num_prompt_tokens) != (
        again.seed,
        again.num_prompt_tokens,
    ):
        raise ProtocolError(
            f"resumed stream of {request_id}: it started with seed {again.seed} and a prompt of "
            f"{again.num_prompt_tokens} tokens, before it was {first}"
        )


def _note(held: list[_Held], event: Delta | Finished) -> None:
    if event.index >= len(held):
        return  # the assembly refuses it
    if isinstance(event, Delta):
        held[event.index].token_ids.extend(event.token_ids)
    else:
        held[event.index].is_finished = True
