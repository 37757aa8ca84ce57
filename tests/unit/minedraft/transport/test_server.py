from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from minedraft.errors import ConfigError, QueueFullError, WorkerUnavailableError
from minedraft.transport import server as server_module
from minedraft.transport import status
from minedraft.transport.channel import MAX_CLIENT_MESSAGE_BYTES, open_channel
from minedraft.transport.server import serve

NAME = "test.Echo"
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING


class Echo:
    """Notes what happens, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.called = asyncio.Event()
        self.release = asyncio.Event()

    async def Slow(self, request, context):
        self.called.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.events.append("rpc cancelled")
            raise
        self.events.append("rpc done")
        return request

    async def Full(self, request, context):
        raise QueueFullError("full")

    def register(self, server):
        handlers = {
            "Slow": grpc.unary_unary_rpc_method_handler(self.Slow),
            "Full": grpc.unary_unary_rpc_method_handler(self.Full),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))
        return (NAME,)


def taken_port() -> socket.socket:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken


async def health_of(port: int, name: str):
    async with open_channel(f"127.0.0.1:{port}") as channel:
        request = health_pb2.HealthCheckRequest(service=name)
        answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
    return answer.status


@asynccontextmanager
async def running(echo, *background, **kwargs):
    """A service on free ports; whoever leaves stops it and sees how it ended."""
    stop = asyncio.Event()
    ports = asyncio.get_running_loop().create_future()

    def on_bound(port, health):
        if health is not None:
            health.set_ready(ready=True)
        ports.set_result((port, health))

    service = asyncio.create_task(
        serve(
            "127.0.0.1:0",
            echo.register,
            *background,
            max_message_bytes=MAX_CLIENT_MESSAGE_BYTES,
            stop=stop,
            on_bound=on_bound,
            **kwargs,
        )
    )
    async with asyncio.timeout(10):
        await asyncio.wait([ports, service], return_when=asyncio.FIRST_COMPLETED)
        if not ports.done():
            service.result()
        port, health = ports.result()
        async with open_channel(f"127.0.0.1:{port}") as channel:
            try:
                yield SimpleNamespace(
                    port=port, health=health, channel=channel, stop=stop, service=service
                )
            finally:
                stop.set()
                echo.release.set()
                await asyncio.wait([service])


async def test_port_0_picks_a_free_one_and_errors_have_their_class():
    async with running(Echo()) as it:
        assert it.port > 0
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.channel.unary_unary(f"/{NAME}/Full")(b"", timeout=5)
        assert isinstance(status.from_rpc_error(caught.value), QueueFullError)
    assert it.service.result() is None


async def test_reflection_lists_the_service():
    async with running(Echo()) as it:
        stub = reflection_pb2_grpc.ServerReflectionStub(it.channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        async for answer in stub.ServerReflectionInfo(iter([request]), timeout=5):
            names = {service.name for service in answer.list_services_response.service}
        assert NAME in names


@pytest.mark.parametrize("what", ["listen", "health_listen"])
async def test_a_port_in_use_is_refused_by_name_and_nothing_is_left_behind(what):
    with taken_port() as taken, taken_port() as free:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        other = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        listen, health = (address, other) if what == "listen" else (other, address)
        with pytest.raises(ConfigError, match=f"{what}='{address}': port .* already in use"):
            await serve(
                listen,
                Echo().register,
                max_message_bytes=1000,
                health_address=health,
                stop=asyncio.Event(),
            )
        again = socket.socket()  # the other port was given back
        again.bind(("127.0.0.1", int(other.rpartition(":")[2])))
        again.close()


@pytest.mark.parametrize("address", ["nowhere.invalid:1", "127.0.0.1:99999", "no port at all"])
@pytest.mark.parametrize("what", ["listen", "health_listen"])
async def test_an_address_that_is_none_is_refused_by_name(what, address):
    addresses = {"listen": "127.0.0.1:0", "health_listen": None, what: address}
    with pytest.raises(ConfigError, match=f"{what}='{address}'"):
        await serve(
            addresses["listen"],
            Echo().register,
            max_message_bytes=1000,
            health_address=addresses["health_listen"],
            stop=asyncio.Event(),
        )


async def test_stopping_is_readiness_off_then_drain_then_rpcs_end_then_loops_end():
    echo = Echo()

    async def loop():
        try:
            await asyncio.Event().wait()
        finally:
            echo.events.append("loop cancelled")

    async def drain():
        live, ready = await health_of(it.health.port, ""), await health_of(it.health.port, NAME)
        echo.events.append(f"drain live={live == SERVING} ready={ready == SERVING}")
        echo.release.set()

    async with running(echo, loop, health_address="127.0.0.1:0", drain=drain) as it:
        assert await health_of(it.health.port, NAME) == SERVING
        calling = it.channel.unary_unary(f"/{NAME}/Slow")(b"x", timeout=5)
        await echo.called.wait()
        it.stop.set()
        assert await calling == b"x"
        await asyncio.wait([it.service])
    assert echo.events == ["drain live=True ready=False", "rpc done", "loop cancelled"]
    assert it.service.result() is None


async def test_what_does_not_end_within_the_grace_is_cut():
    echo = Echo()
    async with running(echo, grace_s=0.05) as it:
        calling = it.channel.unary_unary(f"/{NAME}/Slow")(b"x", timeout=5)
        await echo.called.wait()
        it.stop.set()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await calling
        assert isinstance(status.from_rpc_error(caught.value), WorkerUnavailableError)
        await asyncio.wait([it.service])
    assert echo.events == ["rpc cancelled"]


async def test_while_stopping_new_calls_are_refused():
    echo = Echo()
    async with running(echo) as it:
        calling = it.channel.unary_unary(f"/{NAME}/Slow")(b"x", timeout=5)
        await echo.called.wait()
        it.stop.set()
        async with open_channel(f"127.0.0.1:{it.port}") as other:
            refused = None
            while refused is None:  # until the server has closed its port
                try:
                    await other.unary_unary(f"/{NAME}/Full")(b"", timeout=5)
                except grpc.aio.AioRpcError as err:
                    if err.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        refused = err
        assert isinstance(status.from_rpc_error(refused), WorkerUnavailableError)
        echo.release.set()
        assert await calling == b"x"


async def test_a_loop_that_fails_stops_the_server_and_is_what_serve_raises():
    echo, fail = Echo(), asyncio.Event()

    async def loop():
        await fail.wait()
        raise ValueError("the engine broke")

    async with running(echo, loop, health_address="127.0.0.1:0") as it:
        fail.set()
        await asyncio.wait([it.service])
        with pytest.raises(ExceptionGroup) as caught:
            it.service.result()
        assert caught.group_contains(ValueError, match="the engine broke")
        with pytest.raises(grpc.aio.AioRpcError):
            await it.channel.unary_unary(f"/{NAME}/Full")(b"", timeout=5)
        with pytest.raises(grpc.aio.AioRpcError):
            await health_of(it.health.port, "")


async def test_a_loop_that_returns_is_a_stop_too():
    echo, end = Echo(), asyncio.Event()

    async def loop():
        await end.wait()

    async with running(echo, loop) as it:
        end.set()
        await asyncio.wait([it.service])
        assert it.service.result() is None


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_is_a_stop(signum):
    def on_bound(_port, _health):
        signal.raise_signal(signum)

    async with asyncio.timeout(10):
        await serve(
            "127.0.0.1:0", Echo().register, max_message_bytes=1000, on_bound=on_bound, grace_s=0
        )
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)


async def test_a_call_over_the_number_of_a_port_is_refused_as_full(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_CALLS", 2)
    echo = Echo()
    async with running(echo) as it:
        slow = it.channel.unary_unary(f"/{NAME}/Slow")
        held = [slow(b"x", timeout=10) for _ in range(2)]
        await echo.called.wait()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.gather(*(slow(b"y", timeout=10) for _ in range(2)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert isinstance(status.from_rpc_error(caught.value), QueueFullError)
        echo.release.set()
        assert [await call for call in held] == [b"x", b"x"]
