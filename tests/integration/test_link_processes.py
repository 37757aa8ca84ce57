"""Token links between real processes: what a peer's death, hang and absence look like."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from minedraft.errors import IncompatibleWorkerError, WorkerUnavailableError
from minedraft.link import form
from minedraft.link.endpoints import LinkCounters
from minedraft.link.options import LinkOptions
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.packets.spec import LinkSpec, Transport
from minedraft.transport.channel import server_options
from minedraft.transport.rendezvous import Rendezvous
from minedraft.transport.status import ErrorInterceptor
from minedraft.transport.token_link import TokenLinkServicer
from minedraft.v1 import link_pb2_grpc

pytestmark = [pytest.mark.multiproc, pytest.mark.slow, pytest.mark.timeout(60)]

VOCAB = 1000
OPTIONS = LinkOptions(op_timeout_s=1.0, heartbeat_s=0.2)
# A process of its own forks the drafters: it has imported torch, and grpc has never run in it.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "minedraft.link.gloo", "minedraft.transport.token_link"])


def drafter(wire, options):
    """A drafter's process: forms links and sends packets as it is told."""
    asyncio.run(_draft(wire, options))


async def _draft(wire, options):
    sender = None
    lock = threading.Lock()

    def answer(what, argument):
        with lock:
            wire.send((what, argument))

    answer("up", os.getpid())
    while True:
        what, argument = await asyncio.to_thread(wire.recv)
        if what == "form":
            lost = lambda epoch, reason: answer("lost", (epoch, reason))
            try:
                sender = await form.form_sender(argument, on_lost=lost, options=options)
            except Exception as err:  # noqa: BLE001 told to the test
                answer("failed", repr(err))
            else:
                answer("formed", sender.description)
        elif what == "send":
            for step in argument:
                sender.send(packet(step, sent_ns=time.monotonic_ns()))
        elif what == "close":
            sender.close()
        else:
            return


def packet(step, sent_ns=0, epoch=1):
    # The send time travels as a row id: one clock for all processes of a machine.
    return DraftPacket(epoch, step, 0, (DraftedRow(sent_ns, 5, (1, 2, 3, 4)),) if sent_ns else ())


@dataclass
class Drafter:
    wire: object
    process: object

    def order(self, what, argument=None):
        self.wire.send((what, argument))

    async def answer(self):
        assert await asyncio.to_thread(self.wire.poll, 30)
        return self.wire.recv()


@contextlib.asynccontextmanager
async def a_drafter(options=OPTIONS):
    wire, far_end = FORKS.Pipe()
    process = FORKS.Process(target=drafter, args=(far_end, options), daemon=True)
    process.start()
    far_end.close()
    peer = Drafter(wire, process)
    try:
        assert (await peer.answer())[0] == "up"
        yield peer
    finally:
        process.kill()
        await asyncio.to_thread(process.join, 10)
        process.close()
        wire.close()


@pytest.fixture
async def verifier():
    """A verifier's control plane: (address, rendezvous)."""
    rendezvous = Rendezvous()
    server = grpc.aio.server(options=server_options(2**21), interceptors=[ErrorInterceptor()])
    link_pb2_grpc.add_TokenLinkServicer_to_server(TokenLinkServicer(rendezvous), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", rendezvous
    await server.stop(0)


def spec_of(verifier, name, transport=Transport.GLOO, **kwargs):
    base = LinkSpec(
        epoch=1,
        name=name,
        transport=transport,
        max_rows=16,
        max_draft_tokens=4,
        verifier_address=verifier[0],
        timeout_s=20.0,
    )
    return replace(base, **kwargs)


class Losses:
    def __init__(self):
        self.reports = []
        self.happened = threading.Event()

    def __call__(self, epoch, reason):
        self.reports.append((epoch, reason))
        self.happened.set()

    async def wait(self, timeout_s=10):
        assert await asyncio.to_thread(self.happened.wait, timeout_s)
        return self.reports


async def meet(verifier, peer, spec, losses, options=OPTIONS):
    peer.order("form", spec)
    receiver = await form.form_receiver(
        spec, on_lost=losses, vocab_size=VOCAB, rendezvous=verifier[1], options=options
    )
    what, description = await peer.answer()
    assert what == "formed", description
    return receiver


def percentile(values, share):
    return sorted(values)[int(len(values) * share)]


@pytest.mark.parametrize("transport", [Transport.GLOO, Transport.GRPC])
async def test_packets_arrive_and_the_latency_is_printed(transport, verifier, capsys):
    losses = Losses()
    async with a_drafter() as peer:
        receiver = await meet(verifier, peer, spec_of(verifier, "lat", transport), losses)
        took_us = []
        for step in range(200):
            peer.order("send", [step])
            got = await receiver.take(0, step, 10)
            took_us.append((time.monotonic_ns() - got.rows[0].row_id) / 1e3)
            assert got.rows[0].token_ids == (1, 2, 3, 4)
        assert replace(receiver.counters, received=0) == LinkCounters()
        assert losses.reports == []
        receiver.close()
    with capsys.disabled():
        p50, p99 = percentile(took_us, 0.5), percentile(took_us, 0.99)
        sys.stdout.write(f"\n{receiver.description}: p50 {p50:.0f} us, p99 {p99:.0f} us\n")
    assert p50 < 20_000


@pytest.mark.parametrize("transport", [Transport.GLOO, Transport.GRPC])
async def test_a_killed_drafter_is_noticed_within_a_second(transport, verifier):
    losses = Losses()
    async with a_drafter() as peer:
        receiver = await meet(verifier, peer, spec_of(verifier, "kill", transport), losses)
        taking = asyncio.create_task(receiver.take(0, 1, 20))
        await asyncio.sleep(0)

        os.kill(peer.process.pid, signal.SIGKILL)
        killed = time.monotonic()
        assert await taking is None
        assert time.monotonic() - killed < 1.0
    assert len(await losses.wait()) == 1


@pytest.mark.parametrize("transport", [Transport.GLOO, Transport.GRPC])
async def test_a_hung_drafter_is_lost_after_the_timeout_and_its_epoch_is_over(transport, verifier):
    losses = Losses()
    async with a_drafter() as peer:
        receiver = await meet(verifier, peer, spec_of(verifier, "hang", transport), losses)
        os.kill(peer.process.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        assert await receiver.take(0, 1, 20) is None
        took_s = time.monotonic() - stopped
        assert OPTIONS.op_timeout_s - OPTIONS.heartbeat_s - 0.1 < took_s < 3.0
        ((_, reason),) = await losses.wait()
        assert "1 s" in reason

        os.kill(peer.process.pid, signal.SIGCONT)
        assert (await peer.answer())[0] == "lost"


async def test_a_new_drafter_forms_a_new_link_with_the_same_verifier(verifier):
    first, second = Losses(), Losses()
    async with a_drafter() as peer:
        await meet(verifier, peer, spec_of(verifier, "first"), first)
        os.kill(peer.process.pid, signal.SIGKILL)
        await first.wait()
    async with a_drafter() as peer:
        spec = spec_of(verifier, "second", epoch=2)
        receiver = await meet(verifier, peer, spec, second)
        peer.order("send", [1])
        assert await receiver.take(0, 1, 1) is None  # the packet says epoch 1
        assert receiver.counters.wrong_epoch == 1
        receiver.close()
    assert second.reports == []


async def test_a_closed_receiver_is_noticed_by_the_drafter_at_its_next_heartbeat(verifier):
    losses = Losses()
    async with a_drafter() as peer:
        receiver = await meet(verifier, peer, spec_of(verifier, "close"), losses)
        began = time.monotonic()
        receiver.close()
        assert time.monotonic() - began < 0.5
        assert (await peer.answer())[0] == "lost"
    assert losses.reports == []


async def test_a_closed_sender_is_noticed_by_the_verifier_at_once(verifier):
    losses = Losses()
    async with a_drafter() as peer:
        await meet(verifier, peer, spec_of(verifier, "close"), losses)
        peer.order("close")
        ((epoch, reason),) = await losses.wait(1)
    assert epoch == 1
    assert reason == "gloo: the drafter closed the connection"


async def test_a_drafter_that_never_comes_ends_within_the_timeout(verifier):
    spec = spec_of(verifier, "alone", timeout_s=0.5)
    began = time.monotonic()
    with pytest.raises(WorkerUnavailableError, match="alone"):
        await form.form_receiver(
            spec, on_lost=Losses(), vocab_size=VOCAB, rendezvous=verifier[1], options=OPTIONS
        )
    assert time.monotonic() - began < 3.0


async def test_a_verifier_that_never_forms_ends_the_drafters_attempt_within_the_timeout(verifier):
    spec = spec_of(verifier, "alone", timeout_s=0.5)
    with pytest.raises(WorkerUnavailableError, match="alone"):
        async with asyncio.timeout(3):
            await form.form_sender(spec, on_lost=Losses(), options=OPTIONS)


async def test_a_drafter_that_dies_half_way_ends_the_attempt_within_the_timeout(verifier):
    # It has met (its layout is there) but its rank's address never comes.
    spec = spec_of(verifier, "half", timeout_s=1.0)
    forming = asyncio.create_task(
        form.form_receiver(
            spec, on_lost=Losses(), vocab_size=VOCAB, rendezvous=verifier[1], options=OPTIONS
        )
    )
    site = await verifier[1].site("half", 1)
    site.keys.put("layout/1", repr(spec.layout).encode())
    async with asyncio.timeout(4):
        with pytest.raises(WorkerUnavailableError):
            await forming


async def test_ends_with_different_layouts_refuse_each_other_before_they_connect(verifier):
    # gloo would end the verifier's process at the first packet that is too long.
    spec = spec_of(verifier, "differ")
    async with a_drafter() as peer:
        peer.order("form", replace(spec, max_rows=17))
        with pytest.raises(IncompatibleWorkerError, match="max_rows=17"):
            await form.form_receiver(
                spec, on_lost=Losses(), vocab_size=VOCAB, rendezvous=verifier[1], options=OPTIONS
            )
        what, error = await peer.answer()
        assert what == "failed"
        assert "Incompatible" in error or "has ended" in error


async def test_gloo_listens_on_loopback_only(verifier):
    async with a_drafter() as peer:
        before = listening()
        receiver = await meet(verifier, peer, spec_of(verifier, "listen"), Losses())
        new = listening() - before
        assert new
        assert {address.split(":")[0] for address in new} == {"0100007F"}
        receiver.close()


async def test_ten_generations_leave_no_threads_and_no_files_behind(verifier):
    figures = []
    async with a_drafter() as peer:
        for generation in range(10):
            losses = Losses()
            receiver = await meet(verifier, peer, spec_of(verifier, f"g{generation}"), losses)
            peer.order("send", [1])
            assert await receiver.take(0, 1, 10) is not None
            if generation % 2:
                receiver.close()
                assert (await peer.answer())[0] == "lost"
            else:
                peer.order("close")
                await losses.wait()
            await ended("link-1")
            gc.collect()
            pool = sum(thread.name.startswith("asyncio_") for thread in threading.enumerate())
            tasks, files = (len([*Path("/proc/self", what).iterdir()]) for what in ("task", "fd"))
            figures.append((tasks - pool, files))
    for now, early in zip(figures[-1], figures[1], strict=True):
        assert now <= early, figures


async def ended(name):
    """Wait until the link's own threads have ended."""
    for thread in threading.enumerate():
        if thread.name == name:
            await asyncio.to_thread(thread.join, 5)
            assert not thread.is_alive()


def listening():
    """Addresses (hexadecimal) on which this process listens."""
    inodes = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(link.readlink().name.removeprefix("socket:[").removesuffix("]"))
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text().splitlines()[1:]
    ]
    return {line[1] for line in lines if line[3] == "0A" and line[9] in inodes}
