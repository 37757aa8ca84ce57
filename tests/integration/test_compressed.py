"""Compressed messages, to every RPC of every role in every encoding, and back to every channel."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from pathlib import Path
from unittest.mock import AsyncMock

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2

from minedraft.security.channel import open_sync_channel
from minedraft.transport.channel import MAX_CLIENT_MESSAGE_BYTES, channel_options, open_channel
from minedraft.transport.public_service import AdminServicer, GenerationServicer
from minedraft.transport.server import serve
from minedraft.transport.token_link import TokenLinkServicer
from minedraft.transport.worker_service import (
    DrafterServicer,
    VerifierServicer,
    add_token_link,
)
from minedraft.v1 import admin_pb2, drafter_pb2, generation_pb2, link_pb2, verifier_pb2
from tests import h2

FILES = (generation_pb2, admin_pb2, drafter_pb2, verifier_pb2, link_pb2, health_pb2)
METHODS = [
    f"/{service.full_name}/{method.name}"
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
] + [
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/nobody.knows/This",
]
ENCODINGS = {"gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}
BOMB_BYTES = 48 * 2**20  # as sent it fits a new stream's window
FEW_BYTES = 8 * 2**20
REFUSED = {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED}


@pytest.fixture
async def ports():
    """Every servicer on one server, as `serve` builds it: (its port, the health port)."""

    def register(server: grpc.aio.Server) -> tuple[str, ...]:
        handler = AsyncMock()
        add_token_link(TokenLinkServicer(handler), server)
        return tuple(
            servicer(handler).register(server)
            for servicer in (GenerationServicer, AdminServicer, DrafterServicer, VerifierServicer)
        )

    stop, bound = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(
            "127.0.0.1:0",
            register,
            max_message_bytes=MAX_CLIENT_MESSAGE_BYTES,
            health_address="127.0.0.1:0",
            stop=stop,
            on_bound=lambda port, health: bound.set_result((port, health.port)),
        )
    )
    yield await bound
    stop.set()
    await serving


def peak_bytes(*, reset: bool = False) -> int:
    """Most memory this process has had resident since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def port_of(ports: tuple[int, int], method: str) -> int:
    return ports["grpc.health" in method]


def test_every_encoding_of_grpc_is_here():
    assert {*grpc.Compression} == {*ENCODINGS.values(), grpc.Compression.NoCompression}


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_no_rpc_takes_a_compressed_message(ports, encoding):
    with structlog.testing.capture_logs() as lines:
        for method in METHODS:
            async with open_channel(f"127.0.0.1:{port_of(ports, method)}") as channel:
                call = channel.stream_stream(method)(
                    iter([b"x" * 1000]), compression=ENCODINGS[encoding], timeout=10
                )
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    _ = [answer async for answer in call]
                assert caught.value.code() in REFUSED, method
    assert [line for line in lines if "session" not in line["event"]] == []


async def test_what_a_message_would_inflate_to_takes_no_memory(ports):
    zeros = bytes(BOMB_BYTES)
    bombs = {b"gzip": gzip.compress(zeros, 6), b"deflate": zlib.compress(zeros, 6)}
    del zeros
    before = peak_bytes(reset=True)
    for method in METHODS:
        for encoding, bomb in bombs.items():
            data = h2.HELLO + h2.call(method, encoding=encoding)
            data += h2.message(bomb, compressed=True)
            reader, writer = await h2.connect(port_of(ports, method), data)
            async with asyncio.timeout(10):
                while b"grpc-status" not in await reader.read(65536):
                    pass
            writer.close()
    assert peak_bytes() - before < FEW_BYTES


@pytest.fixture
async def hostile():
    """A server that answers with a bomb."""

    async def bomb(_requests, context):
        context.set_compression(grpc.Compression.Gzip)
        yield bytes(64 * 2**20)

    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    handler = grpc.stream_stream_rpc_method_handler(bomb)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", {"C": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


async def test_a_channel_refuses_a_compressed_answer(hostile):
    why = ""
    while "gzip" not in why:  # the answer may end the call before it has sent: asked again then
        async with open_channel(hostile) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                _ = [answer async for answer in channel.stream_stream("/a.B/C")(iter([b""]))]
        why = str(refused.value)
    assert "is disabled" in why


async def test_a_thread_s_channel_refuses_a_compressed_answer(hostile):
    def ask() -> None:
        with open_sync_channel(hostile, channel_options(2**20), None) as channel:
            list(channel.stream_stream("/a.B/C")(iter([b""]), timeout=10))

    with pytest.raises(grpc.RpcError, match=r"gzip.*is disabled"):
        await asyncio.to_thread(ask)
