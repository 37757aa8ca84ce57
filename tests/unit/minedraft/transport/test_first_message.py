from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
import structlog

from minedraft.errors import AuthenticationError
from minedraft.transport.channel import open_channel, server_options
from minedraft.transport.first_message import FirstMessageInterceptor
from minedraft.transport.status import ErrorInterceptor
from minedraft.v1 import generation_pb2
from tests import h2

METHOD = "/a.B/{}"
PATIENCE_S = 0.2


class Gate(grpc.aio.ServerInterceptor):
    """Refuses everybody, as the one of the tokens does."""

    async def intercept_service(self, continuation, handler_call_details):
        handler = await continuation(handler_call_details)
        kind = next(k for k in KINDS.values() if getattr(handler, k) is not None)

        async def refuse(_request, _context):
            raise AuthenticationError("nobody")

        async def refuse_all(_request, _context):
            raise AuthenticationError("nobody")
            yield

        return handler._replace(**{kind: refuse_all if handler.response_streaming else refuse})


KINDS = {
    "OneOne": "unary_unary",
    "OneMany": "unary_stream",
    "ManyOne": "stream_unary",
    "ManyMany": "stream_stream",
}
BOUNDED = ("OneOne", "OneMany", "ManyMany")


@asynccontextmanager
async def served(*outer, patience_s=PATIENCE_S):
    async def one_one(request, _context):
        return request

    async def one_many(request, _context):
        yield request
        yield request

    async def many_one(requests, _context):
        return [request async for request in requests][-1]

    async def many_many(requests, _context):
        async for request in requests:
            yield request

    kinds = (one_one, one_many, many_one, many_many)
    decode, encode = (
        generation_pb2.AbortRequest.FromString,
        generation_pb2.AbortRequest.SerializeToString,
    )
    handlers = {
        name: getattr(grpc, f"{kind}_rpc_method_handler")(inner, decode, encode)
        for (name, kind), inner in zip(KINDS.items(), kinds, strict=True)
    }
    handlers["Session"] = handlers["ManyMany"]
    server = grpc.aio.server(
        options=server_options(2**20),
        interceptors=[ErrorInterceptor(), *outer, FirstMessageInterceptor(patience_s)],
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield port, channel
    finally:
        await server.stop(0)


REQUEST = generation_pb2.AbortRequest(request_ids=["a"]).SerializeToString()


async def answers_of(channel, name, requests):
    call = channel.stream_stream(METHOD.format(name))(requests, timeout=10)
    return [answer async for answer in call]


@pytest.mark.parametrize("name", KINDS)
async def test_a_call_with_a_message_is_answered(name):
    async with served() as (_port, channel):
        want = [REQUEST] * (2 if name == "OneMany" else 1)
        assert await answers_of(channel, name, iter([REQUEST])) == want


@pytest.mark.parametrize("name", BOUNDED)
async def test_a_call_whose_message_never_comes_is_ended(name):
    async with served() as (_port, channel):
        call = channel.stream_stream(METHOD.format(name))()
        with pytest.raises(grpc.aio.AioRpcError, match=r"no message within 0\.2 s") as caught:
            async with asyncio.timeout(10):
                await call.read()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_session_may_be_silent_from_the_start():
    async with served() as (_port, channel):
        session = channel.stream_stream(METHOD.format("Session"))()
        with pytest.raises(grpc.aio.AioRpcError):  # its patience is longer than that of the session
            await channel.stream_stream(METHOD.format("ManyMany"))().read()
        await session.write(REQUEST)
        assert await session.read() == REQUEST
        session.cancel()


@pytest.mark.parametrize("name", ["OneOne", "OneMany"])
async def test_a_call_that_ends_without_a_message_is_refused(name):
    async with served() as (_port, channel):
        with pytest.raises(grpc.aio.AioRpcError, match="without a message") as caught:
            await answers_of(channel, name, iter([]))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["OneOne", "OneMany"])
async def test_bytes_that_are_no_message_are_refused_by_name_and_not_logged(name):
    async with served() as (_port, channel):
        with structlog.testing.capture_logs() as lines:
            with pytest.raises(grpc.aio.AioRpcError, match=f"{name}: 4 bytes") as caught:
                await answers_of(channel, name, iter([b"\xff" * 4]))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not lines


@pytest.mark.parametrize("name", KINDS)
async def test_a_stranger_is_refused_before_its_message_is_asked_for(name):
    async with served(Gate(), patience_s=60.0) as (_port, channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with asyncio.timeout(10):
                await channel.stream_stream(METHOD.format(name))().read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_nine_hundred_calls_without_a_message_leave_room_for_another():
    async with served(patience_s=1.0) as (port, channel):
        calls = b"".join(h2.call(METHOD.format("OneMany"), 2 * i + 1) for i in range(900))
        reader, writer = await h2.connect(port, h2.HELLO + calls)
        assert await answers_of(channel, "OneOne", iter([REQUEST])) == [REQUEST]
        ended = b""
        async with asyncio.timeout(15):
            while ended.count(b"no message within") < 1:
                ended += await reader.read(65536)
        writer.close()
