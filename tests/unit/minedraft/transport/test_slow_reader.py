from __future__ import annotations

import asyncio

import grpc
import pytest
import structlog

from minedraft.errors import UnreadError
from minedraft.transport.slow_reader import SlowReaderInterceptor
from minedraft.transport.status import abort, from_rpc_error

BLOCK = b"x" * 100_000


class _Endless(grpc.GenericRpcHandler):
    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.num_sent = 0

    def service(self, details):
        return grpc.unary_stream_rpc_method_handler(self._stream)

    async def _stream(self, request, context):
        try:
            while request == b"endless" or self.num_sent < 200:
                yield BLOCK
                self.num_sent += 1
        finally:
            self.ended.set()


@pytest.fixture
async def served():
    endless = _Endless()
    server = grpc.aio.server(interceptors=[SlowReaderInterceptor(abort, patience_s=0.3)])
    server.add_generic_rpc_handlers((endless,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield endless, channel.unary_stream("/a/b")
    await server.stop(0)


async def read_on(call) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_a_stream_that_nobody_reads_is_ended_and_holds_little(served):
    endless, ask = served
    with structlog.testing.capture_logs() as lines:
        call = ask(b"endless")
        await call.read()
        await asyncio.wait_for(endless.ended.wait(), 10)
    assert [line["event"] for line in lines] == ["stream.unread"]
    assert endless.num_sent * len(BLOCK) < 32 * 2**20
    call.cancel()


async def test_whoever_reads_on_afterwards_is_told_and_may_call_again(served):
    endless, ask = served
    call = ask(b"endless")
    await call.read()
    await asyncio.wait_for(endless.ended.wait(), 10)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(read_on(call), 10)
    err = from_rpc_error(caught.value)
    assert isinstance(err, UnreadError)
    assert str(err) == "nothing of the stream was read for 0.3 s"


async def test_a_stream_that_is_read_goes_on_however_long_it_is(served):
    _endless, ask = served
    assert [len(block) async for block in ask(b"long")] == [len(BLOCK)] * 200
