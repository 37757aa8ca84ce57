"""Both ends in one process; deaths and hangs are in tests/integration/test_link_processes.py."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from minedraft.errors import IncompatibleWorkerError
from minedraft.link import gloo
from minedraft.link.options import LinkOptions
from minedraft.packets.spec import Transport

OPTIONS = LinkOptions(op_timeout_s=5.0, heartbeat_s=0.05)


@pytest.fixture
def form(make_spec, losses, control_plane):
    address, rendezvous = control_plane

    async def make(**kwargs):
        spec = make_spec(transport=Transport.GLOO, verifier_address=address)
        lost_s, lost_r = losses(), losses()
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(gloo.form_sender(spec, on_lost=lost_s, options=OPTIONS))
            receiving = group.create_task(
                gloo.form_receiver(
                    make_spec(
                        transport=Transport.GLOO,
                        verifier_address=address,
                        name=spec.name,
                        **kwargs,
                    ),
                    on_lost=lost_r,
                    vocab_size=100,
                    rendezvous=rendezvous,
                    options=OPTIONS,
                )
            )
        return SimpleNamespace(
            sender=sending.result(), receiver=receiving.result(), lost_s=lost_s, lost_r=lost_r
        )

    return make


async def test_packets_travel_in_order_and_heartbeats_between_them_are_not_seen(form, make_packet):
    ends = await form()
    for step in range(50):
        ends.sender.send(make_packet(step))
        assert await ends.receiver.take(0, step, 5) == make_packet(step)

    assert ends.receiver.counters.received == 50
    assert ends.receiver.counters.malformed == 0
    ends.sender.close()
    assert await asyncio.to_thread(ends.lost_r.happened.wait, 5)


async def test_a_burst_is_taken_without_anybody_waiting(form, make_packet):
    ends = await form()
    for step in range(8):
        ends.sender.send(make_packet(step))

    assert [await ends.receiver.take(0, step, 5) for step in range(8)] == [
        make_packet(step) for step in range(8)
    ]
    ends.sender.close()


async def test_a_short_message_is_not_completed_by_the_one_before_it(form, make_packet):
    ends = await form()
    whole = ends.sender._layout.encode(make_packet(1))
    for words in (whole, whole, whole, whole, whole[:12]):  # as many as receives are posted, + 1
        ends.sender.outbox.put(words.copy())
    ends.sender.send(make_packet(2))

    assert await ends.receiver.take(0, 2, 5) == make_packet(2)
    assert ends.receiver.counters.malformed == 1
    ends.sender.close()


async def test_a_closed_receiver_is_noticed_at_the_next_heartbeat(form):
    ends = await form()
    ends.receiver.close()
    ends.receiver.close()

    assert await asyncio.to_thread(ends.lost_s.happened.wait, 5)
    assert ends.lost_s.reports == [(1, "gloo: the verifier closed the connection")]
    assert ends.lost_r.reports == []


async def test_different_layouts_are_refused(form):
    with pytest.raises(ExceptionGroup) as caught:
        await form(max_rows=5)

    # Either end may find it first, or both at once.
    for refusal in caught.value.exceptions:
        assert isinstance(refusal, IncompatibleWorkerError)
        assert "max_rows=4" in str(refusal)
        assert "max_rows=5" in str(refusal)


async def test_a_gloo_whose_port_stays_open_is_given_up(form, monkeypatch):
    monkeypatch.setattr(gloo._Store, "set", _tell_in_a_code_of_its_own)
    with pytest.raises(ExceptionGroup) as caught:
        await form()
    assert "was not found, so it stays open" in repr(caught.value.exceptions)


def _tell_in_a_code_of_its_own(self, key, value):
    self._keys.put(key, value, 5.0)


async def test_forming_leaves_the_environment_alone(form):
    before = dict(os.environ)
    ends = await form()

    assert dict(os.environ) == before
    ends.sender.close()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_process_may_exit_with_a_link_open(control_plane_code):
    # Without care the link's thread returns into a dead interpreter: "terminate called".
    done = subprocess.run(
        [sys.executable, "-c", control_plane_code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "open\n"


@pytest.fixture
def control_plane_code():
    return """
import asyncio, sys, grpc
from minedraft.link import gloo
from minedraft.link.options import LinkOptions
from minedraft.packets.spec import LinkSpec, Transport
from minedraft.transport.rendezvous import Rendezvous
from minedraft.transport.token_link import TokenLinkServicer
from minedraft.v1 import link_pb2_grpc

async def main():
    rendezvous, server = Rendezvous(), grpc.aio.server()
    link_pb2_grpc.add_TokenLinkServicer_to_server(TokenLinkServicer(rendezvous), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    spec = LinkSpec(1, "exit", Transport.GLOO, 4, 4, 0, f"127.0.0.1:{port}", 10.0)
    options = LinkOptions(op_timeout_s=5.0, heartbeat_s=0.0005)  # the peer wakes it all the time
    lost = lambda *_: None
    ends = await asyncio.gather(
        gloo.form_sender(spec, on_lost=lost, options=options),
        gloo.form_receiver(
            spec, on_lost=lost, vocab_size=9, rendezvous=rendezvous, options=options
        ),
    )
    await server.stop(0)
    print("open")

asyncio.run(main())
"""
