from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from minedraft.errors import ConfigError, StateError
from minedraft.link import form
from minedraft.link.local import LocalNetwork
from minedraft.link.options import LinkOptions
from minedraft.packets.spec import Transport
from minedraft.transport.rendezvous import Rendezvous


@pytest.mark.parametrize("transport", [Transport.LOCAL, Transport.GRPC, Transport.GLOO])
async def test_every_transport_carries_packets_behind_the_same_two_calls(
    transport, make_spec, make_packet, losses, control_plane
):
    address, rendezvous = control_plane
    spec = make_spec(transport=transport, verifier_address=address)
    options, lost = LinkOptions(network=LocalNetwork()), losses()
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(form.form_sender(spec, on_lost=losses(), options=options))
        receiving = group.create_task(
            form.form_receiver(
                spec, on_lost=lost, vocab_size=100, rendezvous=rendezvous, options=options
            )
        )
    sender, receiver = sending.result(), receiving.result()
    sender.send(make_packet(1))

    assert await receiver.take(0, 1, 10) == make_packet(1)
    assert transport.value in sender.description
    assert transport.value in receiver.description
    sender.close()
    assert await asyncio.to_thread(lost.happened.wait, 5)


async def test_nccl_without_a_cuda_device_is_refused_on_both_ends(make_spec, losses):
    spec = make_spec(transport=Transport.NCCL)
    says = "transport nccl: device='cpu', want a CUDA device"
    with pytest.raises(ConfigError, match=says):
        await form.form_sender(spec, on_lost=losses())
    with pytest.raises(ConfigError, match=says):
        await form.form_receiver(spec, on_lost=losses(), vocab_size=9, rendezvous=Rendezvous())


async def test_a_local_link_is_for_those_that_were_given_a_network(make_spec, losses):
    spec = make_spec(transport=Transport.LOCAL)
    with pytest.raises(ConfigError, match="transport local: for tests"):
        await form.form_sender(spec, on_lost=losses())
    with pytest.raises(ConfigError, match="transport local: for tests"):
        await form.form_receiver(spec, on_lost=losses(), vocab_size=9)


def test_a_worker_offers_local_links_in_tests_only():
    assert form.available_transports() == ("gloo", "grpc")
    assert form.available_transports(LinkOptions(network=LocalNetwork())) == (
        "gloo",
        "grpc",
        "local",
    )


def test_a_worker_on_cuda_has_nccl_only_where_it_can_be_loaded(monkeypatch):
    monkeypatch.setattr(form.nccl_library, "load", lambda _device: object())
    options = LinkOptions(device="cuda:1")
    assert form.available_transports(options) == ("gloo", "grpc", "nccl")

    def load(_device):
        raise ConfigError("nothing there")

    monkeypatch.setattr(form.nccl_library, "load", load)
    assert form.available_transports(options) == ("gloo", "grpc")


@pytest.mark.parametrize("transport", [Transport.GRPC, Transport.GLOO, Transport.NCCL])
async def test_a_link_between_processes_needs_a_rendezvous(transport, make_spec, losses):
    with pytest.raises(StateError, match="needs a rendezvous"):
        await form.form_receiver(make_spec(transport=transport), on_lost=losses(), vocab_size=9)


@pytest.mark.timeout(60)
def test_nothing_but_gloo_loads_torch():
    code = (
        "import sys, minedraft.link.form, minedraft.link.local, minedraft.link.grpc\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
