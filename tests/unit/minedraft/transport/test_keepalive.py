"""A network that swallows bytes, while they flow and while none do, as each end sees it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import grpc
import pytest

from minedraft.security.channel import open_sync_channel
from minedraft.transport import channel as channel_module
from minedraft.transport.channel import channel_options, open_channel, server_options
from minedraft.transport.keepalive import KEEPALIVE, Keepalive
from tests.faults.tcp_proxy import Proxy

QUICK = Keepalive(silence_ms=1_500, answer_ms=1_000)
SLACK_S = 1.5
LIMIT_S = (QUICK.silence_ms + QUICK.answer_ms) / 1000 + SLACK_S
WAYS = [("to_service", "to_client"), ("to_service",), ("to_client",)]


def test_both_waits_together_are_within_the_promise():
    assert KEEPALIVE.silence_ms + KEEPALIVE.answer_ms <= 14_000


@pytest.mark.parametrize("options", [channel_options(1), server_options(1)])
def test_both_ends_have_the_same_waits(options):
    assert dict(KEEPALIVE.options()).items() <= dict(options).items()


class Both:
    """A service that takes and sends bytes, and notes when its call ended."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def talk(self, requests, context):
        async def take() -> None:
            async for _request in requests:
                pass

        taking = asyncio.create_task(take())
        try:
            await context.send_initial_metadata(())
            flows = ("flows", "yes") in {(k, v) for k, v in context.invocation_metadata()}
            while flows:
                await context.write(b"x" * 1000)
                await asyncio.sleep(0.005)
            await asyncio.Event().wait()
        finally:
            self.ended.set()
            taking.cancel()


@asynccontextmanager
async def served(monkeypatch):
    monkeypatch.setattr(channel_module, "KEEPALIVE", QUICK)
    service, proxy = Both(), Proxy()
    server = grpc.aio.server(options=server_options(10_000))
    handlers = {"C": grpc.stream_stream_rpc_method_handler(service.talk)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", handlers),))
    proxy.upstream = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield service, proxy, await proxy.start()
    finally:
        await proxy.close()
        await server.stop(0)


@pytest.mark.parametrize("flows", [True, False], ids=["bytes flow", "no bytes"])
@pytest.mark.parametrize("swallows", WAYS, ids="+".join)
async def test_both_ends_notice_a_silent_network_in_time(monkeypatch, flows, swallows):
    async with served(monkeypatch) as (service, proxy, address), open_channel(address) as channel:
        metadata = (("flows", "yes" if flows else "no"),)
        call = channel.stream_stream("/a.B/C")(metadata=metadata)
        await call.initial_metadata()

        async def say() -> None:
            with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # it is over
                while flows:
                    await call.write(b"y" * 1000)
                    await asyncio.sleep(0.005)

        saying = asyncio.create_task(say())
        for _ in range(100 if flows else 0):
            await call.read()
        proxy.swallows = swallows
        async with asyncio.timeout(LIMIT_S):
            # INTERNAL: a write was under way when the connection was given up.
            assert await call.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL}
            await service.ended.wait()
        saying.cancel()
        await asyncio.wait((saying,))


async def test_a_thread_s_channel_notices_it_too(monkeypatch):
    async with served(monkeypatch) as (service, proxy, address):

        def listen() -> grpc.StatusCode:
            with open_sync_channel(address, channel_options(10_000), None) as channel:
                call = channel.stream_stream("/a.B/C")(iter(()), metadata=(("flows", "yes"),))
                try:
                    for number, _answer in enumerate(call):
                        if number == 100:
                            proxy.swallows = WAYS[0]
                except grpc.RpcError as err:
                    return err.code()

        async with asyncio.timeout(LIMIT_S + 1):
            assert await asyncio.to_thread(listen) is grpc.StatusCode.UNAVAILABLE
            await service.ended.wait()
