from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from minedraft.errors import InvalidRequestError, WorkerUnavailableError
from minedraft.link import local
from minedraft.link.local import LocalNetwork


@pytest.fixture
def form(make_spec, losses):
    async def make():
        network, spec = LocalNetwork(), make_spec()
        lost_s, lost_r = losses(), losses()
        link = network.link(spec.name)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(local.form_sender(spec, on_lost=lost_s, network=network))
            receiving = group.create_task(
                local.form_receiver(spec, on_lost=lost_r, vocab_size=100, network=network)
            )
        return SimpleNamespace(
            network=network,
            link=link,
            layout=spec.layout,
            sender=sending.result(),
            receiver=receiving.result(),
            lost_s=lost_s,
            lost_r=lost_r,
        )

    return make


async def test_packets_travel(form, make_packet):
    ends = await form()
    ends.sender.send(make_packet(1))

    assert await ends.receiver.take(0, 1, 0) == make_packet(1)
    assert ends.sender.description == ends.receiver.description == "local"


async def test_a_killed_link_is_lost_on_both_ends_once_and_wakes_who_waits(form, make_packet):
    ends = await form()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        taking = group.create_task(ends.receiver.take(0, 1, 15))
        await asyncio.sleep(0)
        ends.link.kill()
        ends.link.kill()

    assert taking.result() is None
    assert ends.lost_s.reports == ends.lost_r.reports == [(1, "killed")]
    ends.sender.send(make_packet(1))
    assert ends.link.num_sent == 0
    assert ends.network.names == ()


async def test_held_packets_wait_for_their_release_in_order(form, make_packet):
    ends = await form()
    ends.link.hold()
    for step in (1, 2, 3):
        ends.sender.send(make_packet(step))
    assert await ends.receiver.take(0, 1, 0) is None

    ends.link.release(2)
    assert await ends.receiver.take(0, 2, 0) == make_packet(2)
    assert ends.receiver.counters.late == 1  # step 1
    ends.link.release()
    ends.sender.send(make_packet(4))
    assert await ends.receiver.take(0, 3, 0) is not None
    assert await ends.receiver.take(0, 4, 0) is not None


async def test_faults_apply_to_as_many_packets_as_ordered(form, make_packet):
    ends = await form()
    ends.link.drop()
    ends.sender.send(make_packet(1))
    ends.link.duplicate(2)
    for step in (2, 3):
        ends.sender.send(make_packet(step))
    ends.link.corrupt()
    for step in (4, 5):
        ends.sender.send(make_packet(step))

    got = [await ends.receiver.take(0, step, 0) is not None for step in (1, 2, 3, 4, 5)]
    assert got == [False, True, True, False, True]
    assert ends.receiver.counters.duplicate == 2
    assert ends.receiver.counters.malformed == 1
    assert ends.link.num_sent == 5


async def test_garbage_can_be_injected(form):
    ends = await form()
    ends.link.inject(np.zeros(3, dtype=np.int32))
    ends.link.inject(ends.layout.encode_heartbeat(1))

    assert ends.receiver.counters.malformed == 1


async def test_either_end_may_close_and_only_the_other_reports(form):
    ends = await form()
    ends.sender.close()
    assert ends.lost_r.reports == [(1, "the drafter closed the link")]
    assert ends.lost_s.reports == []

    ends = await form()
    ends.receiver.close()
    assert ends.lost_s.reports == [(1, "the verifier closed the link")]
    assert ends.lost_r.reports == []
    assert ends.network.names == ()


@pytest.mark.parametrize("side", ["sender", "receiver"])
async def test_a_peer_that_never_comes_ends_within_the_timeout(side, make_spec, losses):
    network, lost = LocalNetwork(), losses()
    spec = make_spec(timeout_s=0.01)
    if side == "sender":
        forming = local.form_sender(spec, on_lost=lost, network=network)
    else:
        forming = local.form_receiver(spec, on_lost=lost, vocab_size=9, network=network)
    with pytest.raises(WorkerUnavailableError, match=spec.name):
        await forming

    assert network.names == ()
    assert lost.reports == []


async def test_a_third_end_is_refused(form, make_spec, losses):
    ends = await form()
    spec = make_spec(name=ends.link.name)
    with pytest.raises(InvalidRequestError, match="both ends are taken"):
        await local.form_sender(spec, on_lost=losses(), network=ends.network)
    assert ends.receiver.is_open
