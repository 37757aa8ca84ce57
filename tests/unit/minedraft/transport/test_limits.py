from __future__ import annotations

import asyncio
import dataclasses
import resource

import grpc
import pytest

from minedraft.transport import limits
from minedraft.transport.channel import open_channel, server_options
from minedraft.transport.limits import CLIENT_IDLE_MS, HEALTH_LIMITS, limits_for
from tests import h2

QUICK = dataclasses.replace(limits_for(20_000), idle_ms=1_000, handshake_ms=1_000)


@pytest.mark.parametrize(
    ("open_files", "connections"), [(64, 16), (256, 128), (1024, 768), (4096, 3584), (10**6, 8192)]
)
def test_some_open_files_stay_for_everything_that_is_no_connection(open_files, connections):
    assert limits_for(open_files).max_connections == connections


def test_with_few_open_files_idle_connections_go_sooner():
    assert limits_for(1024).idle_ms < limits_for(20_000).idle_ms


def test_our_channels_let_go_before_a_server_does():
    assert limits_for(20_000).idle_ms >= CLIENT_IDLE_MS


def test_the_health_port_fits_beside_a_full_one():
    assert limits_for(1024).max_connections + HEALTH_LIMITS.max_connections < 1024 - 128


@pytest.mark.parametrize(
    ("soft", "hard", "want"),
    [
        (1024, 4096, 4096),
        (1024, 10**6, 65_536),
        (1024, resource.RLIM_INFINITY, 65_536),
        (4096, 4096, 4096),
        (10**6, 10**6, 10**6),
    ],
)
def test_the_limit_of_open_files_goes_up_and_never_down(monkeypatch, soft, hard, want):
    asked = []
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _what: (soft, hard))
    monkeypatch.setattr(limits.resource, "setrlimit", lambda _what, both: asked.append(both))
    assert limits.raise_open_files() == want
    assert asked == ([(want, hard)] if want > soft else [])


def test_a_sandbox_that_forbids_it_keeps_what_there_is(monkeypatch):
    def refuse(_what, _both):
        raise ValueError

    monkeypatch.setattr(limits.resource, "getrlimit", lambda _what: (256, 4096))
    monkeypatch.setattr(limits.resource, "setrlimit", refuse)
    assert limits.raise_open_files() == 256


async def serve(bounds):
    async def wait(requests, context):
        async for request in requests:
            yield request

    server = grpc.aio.server(options=server_options(1000, bounds))
    handlers = {"C": grpc.stream_stream_rpc_method_handler(wait)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def until_closed(reader):
    async with asyncio.timeout(10):
        while await reader.read(65536):
            pass


@pytest.mark.parametrize("says", [h2.HELLO, b"", b"PRI * HT"], ids=["HTTP/2", "nothing", "half"])
async def test_a_connection_without_a_call_is_closed(says):
    server, port = await serve(QUICK)
    reader, writer = await h2.connect(port, says)
    await until_closed(reader)
    writer.close()
    await server.stop(0)


async def test_a_connection_with_a_call_outlives_the_idle_time():
    server, port = await serve(QUICK)
    async with open_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream("/a.B/C")()
        await call.write(b"x")
        await call.read()
        reader, writer = await h2.connect(port, h2.HELLO)
        await until_closed(reader)  # the idle time is over
        await call.write(b"y")
        assert await call.read() == b"y"
        writer.close()
    await server.stop(0)


async def test_a_connection_over_the_number_is_closed_and_there_is_room_again_afterwards():
    server, port = await serve(dataclasses.replace(QUICK, max_connections=3, idle_ms=60_000))
    first = [await h2.connect(port, h2.HELLO) for _ in range(3)]
    for reader, _writer in first:
        await reader.readexactly(9)  # the server's SETTINGS: it has been taken in
    reader, writer = await h2.connect(port, b"")
    await until_closed(reader)
    for held in (writer, *(writer for _reader, writer in first)):
        held.close()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream("/a.B/C")(wait_for_ready=True, timeout=10)
        await call.write(b"x")
        assert await call.read() == b"x"
        call.cancel()
    await server.stop(0)
