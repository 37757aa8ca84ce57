"""minedraft/client/stream.py: events, and whose abort it was. The rest is in test_client.py."""

from __future__ import annotations

import asyncio

import pytest

from minedraft.api import Delta, Finished, Started, Usage
from minedraft.client import Client, RetryPolicy, SyncClient
from minedraft.errors import PreconditionError, QueueFullError, RequestAbortedError
from minedraft.types import FinishReason
from tests.fake_coordinator import FakeCoordinator


@pytest.fixture
def aborting(fake: FakeCoordinator):
    """Every answer is aborted after two tokens."""
    fake.events = lambda request: [
        Started(request.request_id or "drawn", 1, 1),
        *(Delta(i, (1, 2), "half ") for i in range(request.sampling.n)),
        *(Finished(i, FinishReason.ABORT, usage=Usage(1, 2)) for i in range(request.sampling.n)),
    ]
    return fake


async def test_an_answer_that_somebody_else_aborted_is_an_error(client: Client, aborting):
    stream = client.stream("hi", request_id="mine")
    deltas = aiter(stream)
    assert (await anext(deltas)).text == "half "
    with pytest.raises(RequestAbortedError, match=r"'mine' was aborted by another .* 2 output"):
        await anext(deltas)
    assert stream.completion.text == "half "
    for n in (1, 2):
        with pytest.raises(RequestAbortedError):
            await client.generate("hi", n=n)


@pytest.mark.parametrize("request_id", ["mine", ""])
async def test_an_answer_that_the_caller_aborted_is_an_answer(client: Client, aborting, request_id):
    stream = client.stream("hi", request_id=request_id)
    async for _ in stream:
        await client.abort("other", stream.request_id)
    assert stream.completion.finish_reason is FinishReason.ABORT


async def test_an_abort_is_for_the_requests_that_it_names(client: Client, aborting):
    stream = client.stream("hi", request_id="mine")
    deltas = aiter(stream)
    await anext(deltas)
    await client.abort("other")
    with pytest.raises(RequestAbortedError):
        await anext(deltas)


async def test_without_a_loop_it_is_the_same(aborting):
    def work():
        with SyncClient(aborting.address) as client:
            with pytest.raises(RequestAbortedError):
                client.generate("hi")
            stream = client.stream("hi")
            for _ in stream:
                client.abort(stream.request_id)
            return stream.completion.finish_reason

    assert await asyncio.to_thread(work) is FinishReason.ABORT


async def test_events_come_as_they_are_sent_and_an_early_end_is_told_early(fake: FakeCoordinator):
    fake.gate = asyncio.Event()  # each answer stops after a token until it opens
    sent = [
        Started("drawn", 7, 1),
        Delta(1, (1,), "a"),
        Finished(1, FinishReason.STOP),
        Delta(0, (2,), "b"),
        Finished(0, FinishReason.LENGTH),
    ]

    async def script(request):
        for event in sent:
            if event == sent[3]:
                await fake.gate.wait()
            yield event

    fake._events = script
    async with await Client.connect(fake.address) as client:
        stream = client.stream("hi", n=2)
        events = stream.events()
        assert [await anext(events) for _ in range(3)] == sent[:3]
        assert stream.request_id == "drawn"
        fake.gate.set()
        assert [event async for event in events] == sent[3:]
        assert stream.completion.choices[1].finish_reason is FinishReason.STOP


async def test_an_abort_is_an_event_among_events(client: Client, aborting):
    stream = client.stream("hi", request_id="mine")
    *_, last = [event async for event in stream.events()]
    assert last.reason is FinishReason.ABORT
    assert stream.completion.text == "half "


async def test_leaving_the_loop_over_events_aborts_the_request(client: Client, fake):
    fake.gate = asyncio.Event()
    async for event in client.stream("hi", max_tokens=50).events():
        if isinstance(event, Delta):
            break
    async with asyncio.timeout(5):
        await fake.cancelled.wait()


async def test_a_stream_is_read_once_in_one_way_or_the_other(client: Client):
    stream = client.stream("hi")
    async for _ in stream.events():
        pass
    with pytest.raises(PreconditionError, match="read once"):
        aiter(stream)
    with pytest.raises(PreconditionError, match="read once"):
        stream.events()


async def test_events_without_a_loop_of_ones_own(fake: FakeCoordinator):
    def work():
        with SyncClient(fake.address) as client:
            return list(client.stream("hi", max_tokens=4).events())

    first, *deltas, last = await asyncio.to_thread(work)
    assert isinstance(first, Started)
    assert sum(len(delta.token_ids) for delta in deltas) == 4
    assert isinstance(last, Finished)


async def test_a_client_may_hear_of_a_full_queue_at_once(fake: FakeCoordinator):
    fake.error = QueueFullError("full")
    policy = RetryPolicy(only_after_start=True)
    async with await Client.connect(fake.address, retry=policy) as client:
        with pytest.raises(QueueFullError):
            await anext(client.stream("hi").events())
    assert len(fake.requests) == 1
