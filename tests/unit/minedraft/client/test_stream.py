"""minedraft/client/stream.py: whose abort it was. What else a stream does is in test_client.py."""

from __future__ import annotations

import asyncio

import pytest

from minedraft.api import Delta, Finished, Started, Usage
from minedraft.client import Client, SyncClient
from minedraft.errors import RequestAbortedError
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
