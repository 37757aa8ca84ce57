from __future__ import annotations

import asyncio
from types import SimpleNamespace

import grpc
import pytest

from minedraft.errors import ProtocolError, StateError, WorkerUnavailableError
from minedraft.link import grpc as grpc_link
from minedraft.link.options import LinkOptions
from minedraft.packets.packet import PacketLayout
from minedraft.packets.spec import Transport
from minedraft.transport.token_link import TokenLinkClient
from minedraft.v1 import link_pb2_grpc

OPTIONS = LinkOptions(op_timeout_s=10, heartbeat_s=2)


@pytest.fixture
def form(make_spec, losses, control_plane):
    address, rendezvous = control_plane

    async def make(*, heartbeat_s=2.0, op_timeout_s=10.0, **kwargs):
        spec = make_spec(transport=Transport.GRPC, verifier_address=address, **kwargs)
        lost_s, lost_r = losses(), losses()
        options = LinkOptions(op_timeout_s=op_timeout_s, heartbeat_s=heartbeat_s)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(
                grpc_link.form_sender(spec, on_lost=lost_s, options=OPTIONS)
            )
            receiving = group.create_task(
                grpc_link.form_receiver(
                    spec, on_lost=lost_r, vocab_size=100, rendezvous=rendezvous, options=options
                )
            )
        return SimpleNamespace(
            spec=spec,
            sender=sending.result(),
            receiver=receiving.result(),
            lost_s=lost_s,
            lost_r=lost_r,
            rendezvous=rendezvous,
        )

    return make


async def happened(losses):
    return await asyncio.to_thread(losses.happened.wait, 5)


async def test_packets_travel_in_order(form, make_packet):
    ends = await form()
    for step in range(20):
        ends.sender.send(make_packet(step))

    for step in range(20):
        assert await ends.receiver.take(0, step, 5) == make_packet(step)
    assert "grpc stream" in ends.sender.description
    assert "grpc stream from ipv4:127.0.0.1" in ends.receiver.description
    ends.sender.close()
    assert await happened(ends.lost_r)


async def test_either_end_may_close_and_only_the_other_reports(form):
    ends = await form()
    ends.sender.close()
    assert await happened(ends.lost_r)
    assert ends.lost_r.reports == [(1, "the drafter closed the link")]
    assert ends.lost_s.reports == []

    ends = await form()
    ends.receiver.close()
    assert await happened(ends.lost_s)
    assert ends.lost_s.reports == [(1, "the verifier closed the link")]
    assert ends.lost_r.reports == []


async def test_a_verifier_that_confirms_no_end_holds_up_no_close(make_spec, losses, monkeypatch):
    """A process that stands still, say."""
    monkeypatch.setattr(grpc_link, "_GOODBYE_S", 0.05)
    left = asyncio.get_running_loop().create_future()

    class Hung(link_pb2_grpc.TokenLinkServicer):
        async def SendPackets(self, request_iterator, context):
            await context.send_initial_metadata([("minedraft-link", "accepted")])
            try:
                await asyncio.Event().wait()
            finally:
                left.set_result(None)

    server = grpc.aio.server()
    link_pb2_grpc.add_TokenLinkServicer_to_server(Hung(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    spec, lost = make_spec(transport=Transport.GRPC, verifier_address=address), losses()
    sender = await grpc_link.form_sender(spec, on_lost=lost, options=OPTIONS)
    sender.close()

    await asyncio.wait_for(left, 5)
    assert lost.reports == []
    await server.stop(0)


async def test_the_end_of_the_link_wakes_who_waits(form):
    ends = await form()
    taking = asyncio.create_task(ends.receiver.take(0, 1, 15))
    await asyncio.sleep(0)
    ends.sender.close()

    async with asyncio.timeout(5):
        assert await taking is None


async def test_a_sender_that_falls_silent_is_lost(form):
    ends = await form(heartbeat_s=0.05, op_timeout_s=0.1)  # the sender beats every 2 s

    assert await happened(ends.lost_r)
    assert ends.lost_r.reports == [(1, "nothing from the drafter for 0.1 s")]
    assert await happened(ends.lost_s)
    assert len(ends.lost_s.reports) == 1


async def test_a_peer_with_another_layout_loses_the_link_instead_of_confusing_it(form):
    ends = await form()
    ends.sender._layout = PacketLayout(max_rows=2, max_draft_tokens=3)
    for step in range(3):
        ends.sender.outbox.put(ends.sender._layout.encode_heartbeat(step))

    assert await happened(ends.lost_r)
    assert "malformed" in ends.lost_r.reports[0][1]


async def test_a_second_sender_is_refused_and_the_first_goes_on(form, make_packet):
    ends = await form()
    with pytest.raises(ProtocolError, match="has a sender already"):
        await grpc_link.form_sender(ends.spec, on_lost=ends.lost_s, options=OPTIONS)

    ends.sender.send(make_packet(1))
    assert await ends.receiver.take(0, 1, 5) is not None
    assert ends.lost_r.reports == ends.lost_s.reports == []
    ends.sender.close()


async def test_a_name_in_use_is_refused(form):
    ends = await form()
    with pytest.raises(StateError, match=ends.spec.name):
        await grpc_link.form_receiver(
            ends.spec,
            on_lost=ends.lost_r,
            vocab_size=100,
            rendezvous=ends.rendezvous,
            options=OPTIONS,
        )
    assert ends.receiver.is_open
    ends.sender.close()


async def test_a_drafter_that_never_comes_ends_within_the_timeout(make_spec, losses, control_plane):
    _, rendezvous = control_plane
    spec = make_spec(transport=Transport.GRPC, timeout_s=0.05)
    with pytest.raises(WorkerUnavailableError, match=spec.name):
        await grpc_link.form_receiver(
            spec, on_lost=losses(), vocab_size=100, rendezvous=rendezvous, options=OPTIONS
        )
    with pytest.raises(WorkerUnavailableError, match="ended"):  # who comes too late is told so
        await rendezvous.site(spec.name, 10)


@pytest.mark.parametrize("is_verifier_up", [True, False])
async def test_a_verifier_that_never_comes_ends_within_the_timeout(
    is_verifier_up, make_spec, losses, control_plane
):
    address = control_plane[0] if is_verifier_up else "127.0.0.1:1"
    spec = make_spec(transport=Transport.GRPC, timeout_s=0.2, verifier_address=address)
    async with asyncio.timeout(3):
        with pytest.raises(WorkerUnavailableError, match=spec.name):
            await grpc_link.form_sender(spec, on_lost=losses(), options=OPTIONS)


async def test_the_receiver_may_form_long_after_the_sender(make_spec, losses, control_plane):
    address, rendezvous = control_plane
    spec = make_spec(transport=Transport.GRPC, verifier_address=address)
    forming = asyncio.create_task(grpc_link.form_sender(spec, on_lost=losses(), options=OPTIONS))
    while not rendezvous._sites._waiters:  # noqa: ASYNC110 until the sender's stream is there
        await asyncio.sleep(0)
    receiver = await grpc_link.form_receiver(
        spec, on_lost=losses(), vocab_size=9, rendezvous=rendezvous, options=OPTIONS
    )

    sender = await forming
    assert sender.is_open
    assert receiver.is_open
    sender.close()


async def test_a_stream_of_garbage_from_a_forged_client_ends_only_the_link(
    make_spec, losses, control_plane
):
    address, rendezvous = control_plane
    spec, lost = make_spec(transport=Transport.GRPC, verifier_address=address), losses()
    forming = asyncio.create_task(
        grpc_link.form_receiver(
            spec, on_lost=lost, vocab_size=9, rendezvous=rendezvous, options=OPTIONS
        )
    )
    client = TokenLinkClient(address)
    stream = client.send_packets(spec.name, iter([b"", b"x", b"y" * 2**20]))
    receiver = await forming

    assert await happened(lost)
    assert receiver.counters.malformed == 3
    stream.cancel()
    client.close()
