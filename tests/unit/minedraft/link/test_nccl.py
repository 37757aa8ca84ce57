"""The protocol of an nccl link over a double of the library: no GPU anywhere here."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from minedraft.errors import (
    ConfigError,
    IncompatibleWorkerError,
    ProtocolError,
    WorkerUnavailableError,
)
from minedraft.link import nccl
from minedraft.link.options import LinkOptions
from minedraft.packets.spec import Transport
from tests.fake_nccl import FakeNccl

OPTIONS = LinkOptions(op_timeout_s=5.0, heartbeat_s=0.05)
HASTY = LinkOptions(op_timeout_s=0.3, heartbeat_s=0.05)


@pytest.fixture
def net():
    return FakeNccl()


@pytest.fixture
def form(make_spec, losses, control_plane, net):
    address, rendezvous = control_plane

    async def make(*, versions=("2.30.7", "2.30.7"), options=OPTIONS, timeout_s=5.0, **kwargs):
        common = {"transport": Transport.NCCL, "verifier_address": address, "timeout_s": timeout_s}
        spec = make_spec(**common)
        ends = SimpleNamespace(
            lost_s=losses(),
            lost_r=losses(),
            lib_s=net.library(versions[0]),
            lib_r=net.library(versions[1]),
            spec=spec,
        )
        sender, receiver = await asyncio.gather(
            nccl.form_sender(spec, on_lost=ends.lost_s, options=options, library=ends.lib_s),
            nccl.form_receiver(
                make_spec(**common, **{"name": spec.name, **kwargs}),
                on_lost=ends.lost_r,
                vocab_size=100,
                rendezvous=rendezvous,
                options=options,
                library=ends.lib_r,
            ),
            return_exceptions=True,
        )
        ends.sender, ends.receiver = sender, receiver
        return ends

    return make


async def aborted(*libraries):
    """Every communicator of these is aborted, soon."""
    for library in libraries:
        for comm in library.comms:
            assert await asyncio.to_thread(comm.is_aborted.wait, 5)


async def test_packets_travel_in_order_and_heartbeats_between_them_are_not_seen(form, make_packet):
    ends = await form()
    for step in range(30):
        ends.sender.send(make_packet(step))
        assert await ends.receiver.take(0, step, 5) == make_packet(step)

    assert ends.receiver.counters.received == 30
    assert ends.receiver.counters.malformed == 0
    assert ends.sender.description == "nccl 2.30.7 cuda:0 via an unknown transport"
    ends.sender.close()
    await aborted(ends.lib_s, ends.lib_r)


async def test_a_short_message_is_not_completed_by_the_one_before_it(form, make_packet):
    ends = await form()
    ends.sender.send(make_packet(1))
    assert await ends.receiver.take(0, 1, 5) == make_packet(1)
    whole = ends.sender._layout.encode(make_packet(2))
    ends.lib_r.comms[0].arrived.put(whole[:12])
    ends.sender.send(make_packet(3))

    assert await ends.receiver.take(0, 3, 5) == make_packet(3)
    assert ends.receiver.counters.malformed == 1
    ends.sender.close()
    await aborted(ends.lib_s, ends.lib_r)


@pytest.mark.parametrize("who", ["sender", "receiver"])
async def test_when_one_end_closes_both_abort_and_only_the_other_reports(form, who):
    ends = await form()
    end = getattr(ends, who)
    end.close()
    end.close()

    lost, own = (ends.lost_r, ends.lost_s) if who == "sender" else (ends.lost_s, ends.lost_r)
    assert await asyncio.to_thread(lost.happened.wait, 5)
    ((epoch, reason),) = lost.reports
    assert epoch == 1
    assert ("drafter" if who == "sender" else "verifier closed the link") in reason
    assert own.reports == []
    await aborted(ends.lib_s, ends.lib_r)


async def test_a_waiting_take_ends_at_once_when_the_lease_ends(form):
    ends = await form()
    waiting = asyncio.create_task(ends.receiver.take(0, 1, 60))
    await asyncio.sleep(0)
    ends.sender.close()

    async with asyncio.timeout(5):
        assert await waiting is None
    await aborted(ends.lib_s, ends.lib_r)


async def test_a_peer_that_hangs_with_its_lease_alive_is_lost_by_the_operation_timeout(form, net):
    ends = await form(options=HASTY)
    net.is_stuck = True  # heartbeats go on over gRPC; nothing moves on the device

    assert await asyncio.to_thread(ends.lost_r.happened.wait, 5)
    assert await asyncio.to_thread(ends.lost_s.happened.wait, 5)
    reasons = {ends.lost_s.reports[0][1], ends.lost_r.reports[0][1]}
    assert any("did nothing for 0.3 s" in reason for reason in reasons)
    await aborted(ends.lib_s, ends.lib_r)


async def test_an_error_that_nccl_reports_later_ends_the_link(form):
    ends = await form()
    ends.lib_r.comms[0].failure = "remote process exited"

    assert await asyncio.to_thread(ends.lost_r.happened.wait, 5)
    assert ends.lost_r.reports == [(1, "nccl: remote process exited")]
    await aborted(ends.lib_s, ends.lib_r)


async def test_an_error_is_seen_while_a_receive_waits_for_the_device(form, net):
    ends = await form()
    net.is_silent = True
    ends.lib_r.comms[0].failure = "remote process exited"

    assert await asyncio.to_thread(ends.lost_r.happened.wait, 2)  # not the 5 s of the operation
    assert ends.lost_r.reports == [(1, "nccl: remote process exited")]
    await aborted(ends.lib_s, ends.lib_r)


async def test_closing_ends_a_receive_that_waits_for_the_device(form, net):
    ends = await form()
    net.is_silent = True
    ends.receiver.close()

    for comm in ends.lib_r.comms:
        assert await asyncio.to_thread(comm.is_aborted.wait, 2)  # not the 5 s of the operation
    await aborted(ends.lib_s)


async def test_a_first_packet_that_is_no_heartbeat_is_no_link(form, net):
    net.is_garbling = True
    ends = await form()
    assert isinstance(ends.receiver, ProtocolError)
    assert "the first packet is no heartbeat" in str(ends.receiver)
    await aborted(ends.lib_s, ends.lib_r)


async def test_the_loss_is_reported_before_an_abort_that_takes_for_ever(form, net):
    ends = await form()
    net.abort_gate.clear()
    ends.lib_r.comms[0].failure = "remote process exited"

    assert await asyncio.to_thread(ends.lost_r.happened.wait, 5)
    assert not ends.lib_r.comms[0].is_aborted.is_set()
    net.abort_gate.set()
    await aborted(ends.lib_s, ends.lib_r)


async def test_another_nccl_is_refused_before_a_communicator_is_begun(form):
    ends = await form(versions=("2.27.5", "2.30.7"))

    refused = [end for end in (ends.sender, ends.receiver) if isinstance(end, Exception)]
    assert len(refused) == 2
    told = [str(err) for err in refused if isinstance(err, IncompatibleWorkerError)]
    assert told
    assert all("2.27.5" in text and "2.30.7" in text for text in told)
    assert ends.lib_s.comms == ends.lib_r.comms == []


async def test_different_layouts_are_refused(form):
    ends = await form(max_rows=5)
    told = [e for e in (ends.sender, ends.receiver) if isinstance(e, IncompatibleWorkerError)]
    assert told
    assert "max_rows=4" in str(told[0])
    assert "max_rows=5" in str(told[0])


async def test_a_communicator_that_never_forms_is_given_up_in_time_and_aborted(form, net):
    net.is_stuck = True
    ends = await form(timeout_s=0.5)

    assert isinstance(ends.sender, WorkerUnavailableError)
    assert isinstance(ends.receiver, WorkerUnavailableError)
    await aborted(ends.lib_s, ends.lib_r)


async def test_a_drafter_that_never_comes_is_given_up_in_time(
    net, make_spec, losses, control_plane
):
    _, rendezvous = control_plane
    library = net.library()
    with pytest.raises(WorkerUnavailableError, match="did not come within"):
        await nccl.form_receiver(
            make_spec(transport=Transport.NCCL, timeout_s=0.2),
            on_lost=losses(),
            vocab_size=9,
            rendezvous=rendezvous,
            options=OPTIONS,
            library=library,
        )
    assert library.comms == []


async def test_a_malformed_unique_id_is_refused(form, monkeypatch, net):
    library = type(net.library())
    monkeypatch.setattr(library, "unique_id", lambda _self: b"short")
    ends = await form()
    assert isinstance(ends.sender, Exception)
    assert "5 bytes" in f"{ends.sender} {ends.receiver}"


async def test_without_a_library_the_worker_is_told_what_is_missing(make_spec, losses):
    with pytest.raises(ConfigError, match="want a CUDA device"):
        await nccl.form_sender(
            make_spec(transport=Transport.NCCL), on_lost=losses(), options=OPTIONS
        )


async def test_a_second_link_forms_while_the_first_is_still_aborting(form, net, make_packet):
    first = await form()
    net.abort_gate.clear()
    first.receiver.close()
    second = await form()
    second.sender.send(make_packet(1))

    assert await second.receiver.take(0, 1, 5) == make_packet(1)
    net.abort_gate.set()
    second.sender.close()
    await aborted(first.lib_s, first.lib_r, second.lib_s, second.lib_r)
