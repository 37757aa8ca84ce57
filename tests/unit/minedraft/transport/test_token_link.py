from __future__ import annotations

import asyncio
import threading

import grpc
import pytest

from minedraft.errors import (
    DeadlineError,
    InvalidRequestError,
    MineDraftError,
    ProtocolError,
    WorkerUnavailableError,
)
from minedraft.transport.channel import server_options
from minedraft.transport.rendezvous import Rendezvous
from minedraft.transport.status import ErrorInterceptor
from minedraft.transport.token_link import TokenLinkClient, TokenLinkServicer
from minedraft.v1 import link_pb2, link_pb2_grpc


class Sink:
    def __init__(self):
        self.packets = []
        self.lost = asyncio.get_running_loop().create_future()

    def feed_bytes(self, data):
        self.packets.append(data)

    def lose(self, reason):
        self.lost.set_result(reason)  # a second call would raise


@pytest.fixture
async def rendezvous():
    return Rendezvous()


@pytest.fixture
async def address(rendezvous):
    server = grpc.aio.server(options=server_options(2**21), interceptors=[ErrorInterceptor()])
    link_pb2_grpc.add_TokenLinkServicer_to_server(TokenLinkServicer(rendezvous), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.fixture
def client(address):
    made = TokenLinkClient(address)
    yield made
    made.close()


async def off_loop(function, *args):
    async with asyncio.timeout(8):
        return await asyncio.to_thread(function, *args)


async def test_keys_travel_both_ways(rendezvous, client):
    site = rendezvous.open("link")
    site.keys.put("mine", b"\x00\xff")

    await off_loop(client.set_key, "link", "yours", b"value", 5)
    assert site.keys.get("yours", 0) == b"value"
    assert await off_loop(client.get_key, "link", "mine", 5) == b"\x00\xff"


async def test_a_key_written_later_ends_the_wait(rendezvous, client):
    site = rendezvous.open("link")
    waiting = asyncio.create_task(off_loop(client.get_key, "link", "k", 5))
    while not site.keys._waiters:  # noqa: ASYNC110 until the call is there
        await asyncio.sleep(0)
    site.keys.put("k", b"v")

    assert await waiting == b"v"


async def test_a_missing_key_is_a_deadline_after_the_time_asked_for(rendezvous, client):
    rendezvous.open("link")
    with pytest.raises(DeadlineError):
        await off_loop(client.get_key, "link", "k", 0.05)


async def test_a_key_cannot_be_overwritten_by_the_peer(rendezvous, client):
    site = rendezvous.open("link")
    site.keys.put("0/0", b"the verifier's address")
    with pytest.raises(ProtocolError, match="written twice"):
        await off_loop(client.set_key, "link", "0/0", b"forged", 5)
    assert site.keys.get("0/0", 0) == b"the verifier's address"


async def test_a_link_that_is_over_is_named(rendezvous, client):
    rendezvous.close(rendezvous.open("link"))
    with pytest.raises(WorkerUnavailableError, match="link link: it has ended"):
        await off_loop(client.set_key, "link", "k", b"v", 5)


async def test_an_unreachable_verifier_ends_within_the_timeout():
    client = TokenLinkClient("127.0.0.1:1")
    with pytest.raises((WorkerUnavailableError, DeadlineError)):
        await off_loop(client.set_key, "link", "k", b"v", 0.1)
    client.close()


@pytest.mark.parametrize(
    ("name", "key", "value", "field"),
    [
        ("", "k", b"v", "link_name"),
        ("n" * 257, "k", b"v", "link_name"),
        ("n", "", b"v", "key"),
        ("n", "k" * 513, b"v", "key"),
        ("n", "k", b"", "value"),
        ("n", "k", b"v" * (64 * 1024 + 1), "value"),
    ],
)
async def test_a_field_out_of_range_is_refused_by_name(client, name, key, value, field):
    with pytest.raises(InvalidRequestError, match=field) as refused:
        await off_loop(client.set_key, name, key, value, 5)
    assert refused.value.field == field


@pytest.mark.parametrize("wait_s", [-1.0, 61.0, float("nan"), float("inf")])
async def test_a_wait_out_of_range_is_refused(address, wait_s):
    async with grpc.aio.insecure_channel(address) as channel:
        request = link_pb2.GetKeyRequest(link_name="n", key="k", timeout_s=wait_s)
        with pytest.raises(grpc.aio.AioRpcError, match="timeout_s") as refused:
            await link_pb2_grpc.TokenLinkStub(channel).GetKey(request, timeout=5)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_packets_reach_the_sink_in_order_and_the_end_is_told(rendezvous, client):
    sink = Sink()
    site = rendezvous.open("link", sink=sink)
    sent = [bytes([i]) * 10 for i in range(50)]
    stream = client.send_packets("link", iter(sent))
    await off_loop(stream.wait_accepted)

    assert await asyncio.wait_for(sink.lost, 5) == "the drafter closed the link"
    assert sink.packets == sent
    assert site.attached.done()
    await off_loop(stream.wait_end)


async def test_closing_the_link_ends_the_stream(rendezvous, client):
    sink = Sink()
    site = rendezvous.open("link", sink=sink)
    stream = client.send_packets("link", endless())
    await off_loop(stream.wait_accepted)
    rendezvous.close(site)

    await off_loop(stream.wait_end)
    assert sink.lost.done()


async def test_a_broken_connection_is_told(rendezvous, client):
    sink = Sink()
    rendezvous.open("link", sink=sink)
    stream = client.send_packets("link", endless())
    await off_loop(stream.wait_accepted)
    client.close()

    assert await asyncio.wait_for(sink.lost, 5) == "the connection to the drafter broke"


async def test_a_stream_that_ends_without_a_last_message_broke(rendezvous, address):
    sink = Sink()
    rendezvous.open("link", sink=sink)
    async with grpc.aio.insecure_channel(address) as channel:
        call = link_pb2_grpc.TokenLinkStub(channel).SendPackets(timeout=5)
        await call.write(link_pb2.SendPacketsRequest(link_name="link"))
        await call.done_writing()  # as grpc shows a servicer a call that was cancelled
        await call

    assert await asyncio.wait_for(sink.lost, 5) == "the connection to the drafter broke"


async def test_silence_ends_the_stream(rendezvous, client):
    sink = Sink()
    rendezvous.open("link", sink=sink, idle_timeout_s=0.05)
    stream = client.send_packets("link", endless())
    await off_loop(stream.wait_accepted)

    assert await asyncio.wait_for(sink.lost, 5) == "nothing from the drafter for 0.05 s"
    await off_loop(stream.wait_end)


async def test_a_stream_for_a_link_that_travels_elsewhere_is_refused(rendezvous, client):
    rendezvous.open("gloo")
    stream = client.send_packets("gloo", iter([b"x"]))
    with pytest.raises(ProtocolError, match="do not travel over gRPC"):
        await off_loop(stream.wait_accepted)


async def test_a_stream_without_a_first_message_is_refused(address):
    async with grpc.aio.insecure_channel(address) as channel:
        call = link_pb2_grpc.TokenLinkStub(channel).SendPackets(timeout=5)
        await call.done_writing()
        with pytest.raises(grpc.aio.AioRpcError, match="no first message") as refused:
            await call
    assert refused.value.code() is grpc.StatusCode.INTERNAL


async def test_a_packet_over_the_limit_ends_the_stream(rendezvous, client):
    sink = Sink()
    site = rendezvous.open("link", sink=sink)

    def packets():
        yield b"x"
        site.attached.result(timeout=5)  # a stream refused before that was nobody's
        yield b"x" * (3 * 2**20)

    stream = client.send_packets("link", packets())
    with pytest.raises(InvalidRequestError, match="RESOURCE_EXHAUSTED"):
        await off_loop(stream.wait_end)
    await asyncio.wait_for(sink.lost, 5)


def endless():
    """No packets, and no end: a drafter with nothing to say."""
    never = threading.Event()
    while not never.wait(0.01):
        pass
    yield b""


async def test_a_fault_of_this_end_is_told_and_reaches_the_errors_of_the_server(rendezvous, client):
    sink = Sink()
    sink.feed_bytes = lambda _data: 1 / 0
    rendezvous.open("link", sink=sink)
    stream = client.send_packets("link", iter([b"x"]))
    await off_loop(stream.wait_accepted)

    assert await asyncio.wait_for(sink.lost, 5) == "this end failed"
    with pytest.raises(MineDraftError):
        await off_loop(stream.wait_end)
