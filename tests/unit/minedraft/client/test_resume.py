"""A broken stream goes on where it broke: nothing lost, nothing repeated, bounded in time."""

from __future__ import annotations

import math

import pytest

from minedraft.api import Delta, Finished, GenerationRequest, ResumedSample, Started
from minedraft.client.resume import NO_RETRIES, RetryPolicy, resuming
from minedraft.errors import (
    DrainingError,
    DuplicateRequestError,
    InvalidRequestError,
    ProtocolError,
    QueueFullError,
    SupersededError,
    WorkerUnavailableError,
)
from minedraft.types import FinishReason, SamplingParams

TOKEN = bytes(range(16))
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
            if isinstance(item, float):  # so many quiet seconds
                self.now += item
                continue
            yield item

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def run(self, *, policy=POLICY, timeout_s=None, n=1, jitter=1.0):
        request = GenerationRequest(
            token_ids=(1, 2, 3),
            sampling=SamplingParams(n=n, temperature=1.0),
            resume_token=TOKEN,
        )
        events = resuming(
            request,
            self.call,
            policy=policy,
            timeout_s=timeout_s,
            clock=lambda: self.now,
            sleep=self.sleep,
            jitter=lambda: jitter,
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
    # With nothing to go on from it claims nothing: a live request of its id is another caller's.
    assert server.calls == [server.calls[0]] * 3
    assert server.calls[2].resumed == ()
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


@pytest.mark.parametrize("refusal", [QueueFullError("full"), DrainingError("bye")])
async def test_a_retry_after_a_refusal_takes_nobodys_place(refusal):
    server = Server([refusal], [refusal], [STARTED, END])
    await server.run()
    # The server had not begun: a live request of this id is another caller's.
    assert [call.resumed for call in server.calls] == [(), (), ()]


async def test_every_call_shows_the_same_secret_by_which_the_server_knows_its_own():
    server = Server([GONE], [QueueFullError("full")], [STARTED, GONE], [STARTED, END])
    await server.run()
    assert [call.resume_token for call in server.calls] == [TOKEN] * 4
    assert [call.resumed for call in server.calls] == [(), (), (), (ResumedSample(0, ()),)]


@pytest.mark.parametrize("refusal", [DuplicateRequestError("in use"), SupersededError("anew")])
async def test_an_id_that_is_another_callers_meanwhile_is_an_error(refusal):
    for script in ([refusal], [STARTED, Delta(0, (5,), "a"), GONE]):
        server = Server(script, [refusal], [STARTED, END])
        with pytest.raises(type(refusal)):
            await server.run()


async def test_patience_counts_from_the_first_failure_since_the_last_event():
    server = Server(*([GONE] for _ in range(9)))
    with pytest.raises(WorkerUnavailableError):
        await server.run()
    assert server.slept == [1.0, 2.0, 4.0]
    assert server.now <= POLICY.patience_s
    moving = Server(*([STARTED, Delta(0, (i,), "."), GONE] for i in range(30)), [STARTED, END])
    assert len(await moving.run()) == 32


async def test_a_quiet_stream_uses_up_no_patience():
    server = Server([STARTED, 61.0, GONE], [500.0, GONE], [STARTED, END])
    with pytest.raises(WorkerUnavailableError):  # the second one was all failure
        await server.run()
    server = Server([STARTED, 61.0, GONE], [STARTED, 61.0, GONE], [STARTED, END])
    assert await server.run() == [STARTED, END]


async def test_endless_patience_has_no_last_retry():
    policy = RetryPolicy(patience_s=math.inf, first_delay_s=1.0, max_delay_s=4.0)
    server = Server(*([GONE] for _ in range(1100)), [STARTED, END])
    assert await server.run(policy=policy) == [STARTED, END]
    assert set(server.slept[2:]) == {4.0}


async def test_the_callers_deadline_bounds_the_whole():
    server = Server([STARTED, GONE], [GONE], [GONE], [GONE])
    with pytest.raises(WorkerUnavailableError):
        await server.run(timeout_s=4.0)
    assert server.now < 4.0
    assert server.deadlines == [4.0, 3.0, 1.0]


@pytest.mark.parametrize("error", [DrainingError("bye"), QueueFullError("full")])
async def test_a_full_or_draining_service_is_asked_again_after_its_delay(error):
    error.retry_after_s = 3.0
    for jitter, slept in ((0.0, 3.0), (0.5, 3.75)):  # later than asked, never sooner
        server = Server([error], [STARTED, END])
        assert await server.run(jitter=jitter) == [STARTED, END]
        assert server.slept == [slept]


async def test_our_own_pauses_are_spread_below_their_length():
    server = Server([GONE], [GONE], [STARTED, END])
    await server.run(jitter=0.0)
    assert server.slept == [0.5, 1.0]


@pytest.mark.parametrize("error", [InvalidRequestError("no"), ProtocolError("what")])
async def test_what_a_retry_cannot_help_is_raised_at_once(error):
    with pytest.raises(type(error)):
        await Server([STARTED, error], [STARTED, END]).run()


@pytest.mark.parametrize("policy", [NO_RETRIES, RetryPolicy(patience_s=0.0, first_delay_s=0.0)])
async def test_no_retries_means_none(policy):
    with pytest.raises(WorkerUnavailableError):
        await Server([STARTED, GONE], [STARTED, END]).run(policy=policy)


async def test_another_seed_on_the_way_is_a_protocol_error():
    server = Server([STARTED, Delta(0, (1,), "a"), GONE], [Started("r1", 78, 3), END])
    with pytest.raises(ProtocolError, match="seed 78"):
        await server.run()


BEFORE = RetryPolicy(patience_s=10.0, first_delay_s=1.0, only_after_start=True)


@pytest.mark.parametrize("refusal", [GONE, QueueFullError("full"), DrainingError("bye")])
async def test_who_asks_for_it_hears_at_once_that_a_request_did_not_start(refusal):
    server = Server([refusal], [STARTED, END])
    with pytest.raises(type(refusal)):
        await server.run(policy=BEFORE)
    assert server.slept == []


@pytest.mark.parametrize("refusal", [GONE, QueueFullError("full"), DrainingError("bye")])
async def test_once_started_it_is_resumed_all_the_same(refusal):
    server = Server([STARTED, Delta(0, (5,), "a"), GONE], [refusal], [refusal], [STARTED, END])
    events = await server.run(policy=BEFORE)
    assert events == [STARTED, Delta(0, (5,), "a"), END]
    assert len(server.calls) == 4
