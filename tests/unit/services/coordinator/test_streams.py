from __future__ import annotations

import asyncio

import pytest

from minedraft.api import Delta, Finished
from minedraft.errors import WorkerUnavailableError
from minedraft.services.coordinator.streams import EventStream
from minedraft.transport import public_codec
from minedraft.transport.channel import MAX_CLIENT_MESSAGE_BYTES
from minedraft.types import FinishReason, TokenLogprobs
from tests.engine_world import read


def end(index: int = 0) -> Finished:
    return Finished(index, FinishReason.STOP)


async def test_a_reader_that_lags_gets_one_delta_with_everything_in_order():
    stream = EventStream(1)
    for token in range(500):
        entry = (TokenLogprobs(token, -1.0),)
        stream.push(Delta(0, (token,), str(token), entry))
    stream.finish(end())
    events = [event async for event in stream]
    assert len(events) == 2
    assert events[0].token_ids == tuple(range(500))
    assert events[0].text == "".join(map(str, range(500)))
    assert [entry.token_id for entry in events[0].logprobs] == list(range(500))
    assert events[1] == end()


async def test_what_is_joined_fits_the_message_that_carries_it():
    stream = EventStream(1)
    num_tokens = 20_000
    top = tuple((100_000 + i, -2.5) for i in range(20))
    for token in range(0, num_tokens, 50):
        ids = tuple(range(token, token + 50))
        entries = tuple(TokenLogprobs(i, -1.0, top) for i in ids)
        stream.push(Delta(0, ids, "four" * 50, entries))
    stream.finish(end())
    *deltas, last = [event async for event in stream]
    assert last == end()
    assert sum((delta.token_ids for delta in deltas), ()) == tuple(range(num_tokens))
    assert len("".join(delta.text for delta in deltas)) == 4 * num_tokens
    assert max(len(delta.token_ids) for delta in deltas) <= 512 + 50
    sizes = [public_codec.event_to_proto(delta).ByteSize() for delta in deltas]
    assert max(sizes) < MAX_CLIENT_MESSAGE_BYTES
    assert sum(sizes) > MAX_CLIENT_MESSAGE_BYTES


async def test_deltas_are_joined_by_sample_and_a_read_one_is_not_sent_again():
    stream = EventStream(2)
    stream.push(Delta(0, (1,), "a"))
    stream.push(Delta(1, (7,), "x"))
    stream.push(Delta(0, (2,), "b"))
    assert await anext(stream) == Delta(0, (1, 2), "ab")
    stream.push(Delta(0, (3,), "c"))
    assert await anext(stream) == Delta(1, (7,), "x")
    assert await anext(stream) == Delta(0, (3,), "c")


async def test_memory_is_one_delta_and_one_end_a_sample_however_much_is_pushed():
    stream = EventStream(3)
    for step in range(300):
        stream.push(Delta(step % 3, (step,), ""))
    for index in range(3):
        stream.finish(end(index))
    assert len(stream._deltas) == len(stream._finished) == 3


async def test_the_end_comes_after_the_output_and_once_a_sample():
    stream = EventStream(2)
    stream.push(Delta(1, (1,), ""))
    stream.finish(end(1))
    stream.push(Delta(0, (2,), ""))
    stream.finish(end(0))
    tokens, ends = await read(stream)
    assert tokens == {0: [2], 1: [1]}
    assert set(ends) == {0, 1}
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_stream_with_an_open_sample_goes_on_after_another_ended():
    stream = EventStream(2)
    stream.finish(end(0))
    assert stream._num_open == 1
    assert await anext(stream) == end(0)
    reader = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert not reader.done()
    stream.push(Delta(1, (5,), ""))
    assert await reader == Delta(1, (5,), "")


async def test_an_error_wins_over_what_is_unread_and_stays():
    stream = EventStream(1)
    stream.push(Delta(0, (1,), "lost"))
    stream.finish(end())
    first = WorkerUnavailableError("first")
    stream.fail(first)
    stream.fail(WorkerUnavailableError("second"))
    for _ in range(2):
        with pytest.raises(WorkerUnavailableError, match="first"):
            await anext(stream)


async def test_an_error_wakes_a_reader_that_waits():
    stream = EventStream(1)
    reader = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    stream.fail(WorkerUnavailableError("gone"))
    with pytest.raises(WorkerUnavailableError, match="gone"):
        await reader


async def test_a_reader_that_was_cancelled_loses_nothing():
    stream = EventStream(1)
    reader = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    reader.cancel()
    stream.push(Delta(0, (1,), ""))
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await anext(stream) == Delta(0, (1,), "")


async def test_a_stream_of_no_samples_ends_at_once():
    assert [event async for event in EventStream(0)] == []


async def test_a_sample_that_ended_is_told_while_the_others_go_on():
    stream = EventStream(2)
    stream.push(Delta(1, (1,), ""))
    stream.finish(end(1))
    stream.push(Delta(0, (2,), ""))
    assert await anext(stream) == Delta(1, (1,), "")
    assert await anext(stream) == end(1)  # however much of the other one waits
    assert await anext(stream) == Delta(0, (2,), "")
