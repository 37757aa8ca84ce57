from __future__ import annotations

import asyncio

import grpc
import pytest

from minedraft.security.channel import open_sync_channel
from minedraft.services.coordinator.config import MAX_ROWS, CoordinatorConfig
from minedraft.transport.channel import (
    MAX_CLIENT_MESSAGE_BYTES,
    MAX_WORKER_MESSAGE_BYTES,
    channel_options,
    open_channel,
    server_options,
)


def test_both_ends_have_the_same_limits():
    limits = {
        "grpc.max_receive_message_length": MAX_WORKER_MESSAGE_BYTES,
        "grpc.max_send_message_length": MAX_WORKER_MESSAGE_BYTES,
    }
    assert limits.items() <= dict(channel_options(MAX_WORKER_MESSAGE_BYTES)).items()
    assert limits.items() <= dict(server_options(MAX_WORKER_MESSAGE_BYTES)).items()


def test_the_server_lets_pings_come_as_often_as_the_channel_sends_them():
    sends_every = dict(channel_options(1))["grpc.keepalive_time_ms"]
    allows_every = dict(server_options(1))["grpc.http2.min_ping_interval_without_data_ms"]
    assert allows_every < sends_every


def test_a_port_is_never_shared():
    assert dict(server_options(1))["grpc.so_reuseport"] == 0


def test_a_lost_peer_is_dialled_again_within_a_second():
    options = dict(channel_options(1))
    assert options["grpc.initial_reconnect_backoff_ms"] <= 100
    assert options["grpc.max_reconnect_backoff_ms"] <= 1000


async def echo_server(limit: int, port: int = 0):
    async def echo(request, context):
        return request

    async def who(request, context):
        return context.peer().encode()

    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Who": grpc.unary_unary_rpc_method_handler(who),
    }
    server = grpc.aio.server(options=server_options(limit))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.E", handlers),))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, port


@pytest.mark.parametrize("limit", [1000, MAX_CLIENT_MESSAGE_BYTES])
async def test_a_message_of_exactly_the_limit_passes_and_one_more_byte_does_not(limit):
    server, port = await echo_server(limit)
    async with open_channel(f"127.0.0.1:{port}", max_message_bytes=limit) as channel:
        echo = channel.unary_unary("/test.E/Echo")
        assert len(await echo(b"x" * limit, timeout=10)) == limit
        with pytest.raises(grpc.aio.AioRpcError, match=str(limit)) as caught:
            await echo(b"x" * (limit + 1), timeout=10)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await server.stop(0)


async def test_a_restarted_peer_is_found_again():
    server, port = await echo_server(1000)
    async with open_channel(f"127.0.0.1:{port}") as channel:
        echo = channel.unary_unary("/test.E/Echo")
        assert await echo(b"x", timeout=10) == b"x"
        await server.stop(0)
        with pytest.raises(grpc.aio.AioRpcError):
            await echo(b"x", timeout=10)
        server, _port = await echo_server(1000, port)
        async with asyncio.timeout(10):
            assert await echo(b"x", timeout=10, wait_for_ready=True) == b"x"
    await server.stop(0)


async def test_channels_share_a_connection_unless_one_wants_its_own():
    server, port = await echo_server(1000)
    peers = []
    for own_connection in (False, False, True, True):
        channel = open_channel(f"127.0.0.1:{port}", own_connection=own_connection)
        peers.append((channel, await channel.unary_unary("/test.E/Who")(b"", timeout=10)))
    names = [name for _channel, name in peers]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    for channel, _name in peers:
        await channel.close()
    await server.stop(0)


async def test_a_connection_carries_more_calls_than_a_coordinator_holds():
    """Else the calls beyond it wait at the client, where nobody says that the queue is full."""
    config = CoordinatorConfig()
    assert dict(server_options(1))["grpc.max_concurrent_streams"] > (
        MAX_ROWS + config.max_waiting_requests
    )


async def test_no_channel_of_our_own_goes_through_the_environment_s_proxy(monkeypatch):
    """Workers' channels, those of threads too."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    server, port = await echo_server(1000)

    def ask() -> bytes:
        with open_sync_channel(f"127.0.0.1:{port}", channel_options(1000), None) as channel:
            return channel.unary_unary("/test.E/Echo")(b"y", timeout=10)

    async with open_channel(f"127.0.0.1:{port}") as channel:
        assert await channel.unary_unary("/test.E/Echo")(b"x", timeout=10) == b"x"
    assert await asyncio.to_thread(ask) == b"y"
    await server.stop(0)
