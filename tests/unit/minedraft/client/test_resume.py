"""A broken stream goes on where it broke: nothing lost, nothing repeated, bounded in time."""

from __future__ import annotations

import pytest

from minedraft.api import Delta, Finished, GenerationRequest, ResumedSample, Started
from minedraft.client.resume import NO_RETRIES, RetryPolicy, resuming
from minedraft.errors import (
    DrainingError,
    InvalidRequestError,
    ProtocolError,
    QueueFullError,
    WorkerUnavailableError,
)
from minedraft.types import FinishReason, SamplingParams

GONE = WorkerUnavailableError("gone")
STARTED = Started("r1", 77, 3)
END = Finished(0, FinishReason.LENGTH)
POLICY = RetryPolicy(patience_s=10.0, first_delay_s=1.0, max_delay_s=4.0)


class Server:
    """Plays one script a call: events, then perhaps an error."""

    def __init__(self, *scripts) -> None:
        self.scripts = list(scripts)
        self.calls: list[GenerationRequest] = []
        self.deadlines: list[float | None] = []
        self.now = 0.0
        self.slept: list[float] = []

    async def call(self, request, timeout_s):
        self.calls.append(request)
        self.deadlines.append(timeout_s)
        for item in self.scripts.pop(0):
            if isinstance(item, Exception):
                raise item
            yield item

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def run(self, *, policy=POLICY, timeout_s=None, n=1):
        request = GenerationRequest(
            token_ids=(1, 2, 3), sampling=SamplingParams(n=n, temperature=1.0)
        )
        events = resuming(
            request,
            self.call,
            policy=policy,
            timeout_s=timeout_s,
            clock=lambda: self.now,
            sleep=self.sleep,
            jitter=lambda: 1.0,
        )
        return [event async for event in events]


async def test_a_broken_stream_goes_on_with_the_seed_and_the_tokens_held():
    server = Server(
        [STARTED, Delta(0, (5, 6), "ab"), GONE],
        [STARTED, Delta(0, (7,), "c"), END],
    )
    events = await server.run()
    assert events == [STARTED, Delta(0, (5, 6), "ab"), Delta(0, (7,), "c"), END]
    again = server.calls[1]
    assert again.sampling.seed == 77
    assert again.request_id == "r1"
    assert again.resumed == (ResumedSample(0, (5, 6)),)


async def test_a_call_that_never_started_is_simply_made_again():
    server = Server([GONE], [GONE], [STARTED, END])
    assert await server.run() == [STARTED, END]
    # Perhaps the server had begun: what is held, nothing, says that this call takes its place.
    assert server.calls[2].resumed == (ResumedSample(0, ()),)
    assert server.slept == [1.0, 2.0]


async def test_finished_samples_are_not_asked_for_again():
    server = Server(
        [STARTED, Delta(1, (9,), "x"), Finished(1, FinishReason.STOP), Delta(0, (5,), "a"), GONE],
        [STARTED, END],
    )
    await server.run(n=2)
    assert server.calls[1].resumed == (
        ResumedSample(0, (5,)),
        ResumedSample(1, (9,), is_finished=True),
    )


async def test_patience_counts_from_the_last_event():
    server = Server(*([GONE] for _ in range(9)))
    with pytest.raises(WorkerUnavailableError):
        await server.run()
    assert server.slept == [1.0, 2.0, 4.0]
    assert server.now <= POLICY.patience_s
    moving = Server(*([STARTED, Delta(0, (i,), "."), GONE] for i in range(30)), [STARTED, END])
    assert len(await moving.run()) == 32


async def test_the_callers_deadline_bounds_the_whole():
    server = Server([STARTED, GONE], [GONE], [GONE], [GONE])
    with pytest.raises(WorkerUnavailableError):
        await server.run(timeout_s=4.0)
    assert server.now < 4.0
    assert server.deadlines == [4.0, 3.0, 1.0]


@pytest.mark.parametrize("error", [DrainingError("bye"), QueueFullError("full")])
async def test_a_full_or_draining_service_is_asked_again_after_its_delay(error):
    error.retry_after_s = 3.0
    server = Server([error], [STARTED, END])
    assert await server.run() == [STARTED, END]
    assert server.slept == [3.0]


@pytest.mark.parametrize("error", [InvalidRequestError("no"), ProtocolError("what")])
async def test_what_a_retry_cannot_help_is_raised_at_once(error):
    with pytest.raises(type(error)):
        await Server([STARTED, error], [STARTED, END]).run()


async def test_no_retries_means_none():
    with pytest.raises(WorkerUnavailableError):
        await Server([STARTED, GONE], [STARTED, END]).run(policy=NO_RETRIES)


async def test_another_seed_on_the_way_is_a_protocol_error():
    server = Server([STARTED, Delta(0, (1,), "a"), GONE], [Started("r1", 78, 3), END])
    with pytest.raises(ProtocolError, match="seed 78"):
        await server.run()
