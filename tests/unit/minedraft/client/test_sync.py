from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from minedraft import errors
from minedraft.client import SyncClient
from tests.fake_coordinator import FakeCoordinator


async def run(work):
    """Run synchronous client code beside the loop that serves the double."""
    return await asyncio.to_thread(work)


async def test_generate_and_stream_without_a_loop(fake: FakeCoordinator):
    def work():
        with SyncClient(fake.address) as client:
            whole = client.generate("hi", max_tokens=6)
            stream = client.stream("hi", max_tokens=6)
            text = "".join(delta.text for delta in stream)
            return whole.text, text, stream.completion.text

    whole, streamed, completed = await run(work)
    assert whole == streamed == completed != ""


async def test_text_and_ids_without_a_loop(fake: FakeCoordinator):
    def work():
        with SyncClient(fake.address) as client:
            info = client.tokenizer_info()
            return client.tokenize("ab"), client.detokenize([0, 5]), info.vocab_size

    assert await run(work) == ((0, 97, 98), "w0 w5 ", 1000)


async def test_leaving_the_loop_aborts_the_request(fake: FakeCoordinator):
    fake.gate = asyncio.Event()

    def work():
        with SyncClient(fake.address) as client:
            for _ in client.stream("hi", max_tokens=50):
                break
            return client.status().mode.name

    assert await run(work) == "psd"
    async with asyncio.timeout(5):
        await fake.cancelled.wait()


async def test_errors_are_typed_and_the_client_lives_on(fake: FakeCoordinator):
    def work():
        with SyncClient(fake.address) as client:
            with pytest.raises(errors.InvalidRequestError, match="max_tokens=-1"):
                client.generate("hi", max_tokens=-1)
            return client.generate("hi", max_tokens=2).usage.num_output_tokens

    assert await run(work) == 2


async def test_closing_ends_the_thread_and_is_repeatable(fake: FakeCoordinator):
    def work():
        client = SyncClient(fake.address)
        client.close()
        client.close()

    await run(work)
    assert not [t for t in threading.enumerate() if t.name == "minedraft-client"]


async def test_a_closed_client_says_so(fake: FakeCoordinator):
    def work():
        client = SyncClient(fake.address)
        stream = client.stream("hi")
        begun = iter(client.stream("hi", max_tokens=50))
        next(begun)
        client.close()
        for call in (
            lambda: client.generate("hi"),
            client.status,
            lambda: list(stream),
            lambda: next(begun),
        ):
            with pytest.raises(errors.PreconditionError, match="client is closed"):
                call()
        left = iter(client.stream("hi"))
        left.close()  # never begun: nothing to end

    await run(work)
    gc.collect()  # a coroutine that was never awaited would warn, which is an error here


async def test_closing_ends_the_calls_of_other_threads(fake: FakeCoordinator):
    fake.gate = asyncio.Event()
    is_live, is_refused = threading.Event(), threading.Event()
    client = await run(lambda: SyncClient(fake.address))

    def read():
        with pytest.raises(errors.RequestAbortedError):  # noqa: PT012
            for _ in client.stream("hi", max_tokens=50):
                is_live.set()

    def refuse(_request):
        is_refused.set()
        full = errors.QueueFullError("full")
        full.retry_after_s = 30.0
        raise full

    def wait_for_a_retry():
        with pytest.raises(errors.RequestAbortedError):
            client.generate("hi", max_tokens=50)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(run(read))
        await run(is_live.wait)
        fake.events = refuse
        group.create_task(run(wait_for_a_retry))
        await run(is_refused.wait)
        await run(client.close)


async def test_nobody_there_raises_and_leaves_no_thread():
    with pytest.raises(errors.WorkerUnavailableError):
        await run(lambda: SyncClient("127.0.0.1:1", timeout_s=0.2))
    assert not [t for t in threading.enumerate() if t.name == "minedraft-client"]
