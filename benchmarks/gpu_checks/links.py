"""Links between two processes of this machine: latency, kill -9, forming again. NCCL with the rest.

The sender lives in a child (`peer.py`), the receiver here. The send time travels as a row id: all
processes of a machine read one monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from gpu_checks.check import CheckFailed, Figures, Setting, SkipCheck, require
from minedraft.errors import MineDraftError
from minedraft.link import form, nccl_library
from minedraft.link.local import LocalNetwork
from minedraft.link.options import LinkOptions
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.packets.spec import LinkSpec, Transport
from minedraft.transport.channel import server_options
from minedraft.transport.rendezvous import Rendezvous
from minedraft.transport.status import ErrorInterceptor
from minedraft.transport.token_link import TokenLinkServicer
from minedraft.v1 import link_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from minedraft.link.endpoints import DraftReceiver

PEER = Path(__file__).with_name("peer.py")
IDLE_S = 1.5
LOST_WITHIN_S = 2.0
MULTI_RANK_SINCE = (2, 30)
MULTI_RANK = "NCCL_MULTI_RANK_GPU_ENABLE"


def link_local(setting: Setting) -> Figures:
    """Both ends here, no transport: what the rest is compared with."""
    return asyncio.run(_local(setting))


def link_grpc(setting: Setting) -> Figures:
    """Bytes in a gRPC stream."""
    return asyncio.run(_measure(setting, Transport.GRPC, "cpu", "cpu"))


def link_gloo(setting: Setting) -> Figures:
    """CPU tensors over gloo."""
    return asyncio.run(_measure(setting, Transport.GLOO, "cpu", "cpu"))


def link_nccl(setting: Setting) -> Figures:
    """Between two GPUs."""
    return asyncio.run(_measure(setting, Transport.NCCL, "cuda:0", "cuda:1"))


def link_nccl_one_gpu(setting: Setting) -> Figures:
    """Both ends on one GPU: refused before NCCL 2.30, an experiment since."""
    version = nccl_library.load("cuda:0").version
    if tuple(map(int, version.split(".")[:2])) >= MULTI_RANK_SINCE:
        os.environ[MULTI_RANK] = "1"  # inherited by the peer
    try:
        return asyncio.run(_measure(setting, Transport.NCCL, "cuda:0", "cuda:0"))
    except MineDraftError as err:
        if MULTI_RANK in os.environ:
            raise
        raise SkipCheck(
            f"NCCL {version} refuses two ranks on one GPU, as it should: {err}"
        ) from err


def link_nccl_again_and_again(setting: Setting) -> Figures:
    """Form, use and close many times: no memory of the device stays behind."""
    return asyncio.run(_again(3 if setting.is_short else 15))


async def _local(setting: Setting) -> Figures:
    lost = Lost()
    spec = _spec("local", Transport.LOCAL, "127.0.0.1:1")
    network = LocalNetwork()
    options = LinkOptions(network=network)
    sender, receiver = await asyncio.gather(
        form.form_sender(spec, on_lost=lambda *_: None, options=options),
        form.form_receiver(spec, on_lost=lost, vocab_size=1000, options=options),
    )
    times_us = []
    for step in range(_count(setting)):
        sender.send(DraftPacket(1, step, 0, _rows(time.monotonic_ns())))
        times_us.append(_age_us(await receiver.take(0, step, 5)))
    started = time.monotonic()
    network.link(spec.name).kill()
    return {**_percentiles(times_us), "lost_ms": await lost.after(started)}


async def _measure(
    setting: Setting, transport: Transport, receiver_device: str, sender_device: str
) -> Figures:
    count = _count(setting)
    async with _control_plane() as (address, rendezvous), _peer(sender_device) as peer:
        lost = Lost()
        started = time.monotonic()
        spec = _spec("measure", transport, address)
        receiver = await _form(spec, peer, lost, rendezvous, receiver_device)
        form_ms = 1e3 * (time.monotonic() - started)
        await peer.order({"send": count, "pause_s": 0.002})
        times_us = [_age_us(await receiver.take(0, step, 5)) for step in range(count)]
        await peer.answer()
        await asyncio.sleep(IDLE_S)  # heartbeats keep it
        require(not lost.happened.is_set(), f"lost while idle: {lost.reason}")

        started = time.monotonic()
        peer.process.kill()
        lost_ms = await lost.after(started)
        ended_ms = await _thread_ends(started)
        receiver.close()
        return {
            "form_ms": round(form_ms, 1),
            **_percentiles(times_us),
            "lost_ms": lost_ms,
            "thread_ended_ms": ended_ms,
            "why": lost.reason,
            "is": receiver.description,
        }


async def _again(count: int) -> Figures:
    import torch

    times_ms, close_ms, free = [], [], []
    async with _control_plane() as (address, rendezvous), _peer("cuda:1") as peer:
        for epoch in range(count):
            started = time.monotonic()
            spec = _spec(f"again-{epoch}", Transport.NCCL, address)
            receiver = await _form(spec, peer, Lost(), rendezvous, "cuda:0")
            times_ms.append(1e3 * (time.monotonic() - started))
            await peer.order({"send": 1, "pause_s": 0})
            require(await receiver.take(0, 0, 5), f"epoch {epoch}: no packet")
            await peer.answer()
            started = time.monotonic()
            receiver.close()
            await _thread_ends(started)
            close_ms.append(1e3 * (time.monotonic() - started))
            free.append(torch.cuda.mem_get_info(0)[0])
            await peer.order({"close": True})
            await peer.answer()
    leaked_mib = (free[min(1, count - 1)] - free[-1]) / 2**20
    require(leaked_mib < 64, f"{leaked_mib:.0f} MiB of the device are gone")
    return {
        "links": count,
        "form_ms": round(statistics.median(times_ms), 1),
        "close_ms": round(statistics.median(close_ms), 1),
        "leaked_mib": round(leaked_mib, 1),
    }


class Lost:
    """An `on_lost` to wait for."""

    def __init__(self) -> None:
        self.happened = threading.Event()
        self.at = 0.0
        self.reason = ""

    def __call__(self, _epoch: int, reason: str) -> None:
        """Note when and why."""
        self.at, self.reason = time.monotonic(), reason
        self.happened.set()

    async def after(self, started: float) -> float:
        """Milliseconds from then to the report."""
        told = await asyncio.to_thread(self.happened.wait, LOST_WITHIN_S)
        require(told, f"the loss was not reported within {LOST_WITHIN_S} s")
        return round(1e3 * (self.at - started), 1)


class Peer:
    """The child with the sender; JSON lines both ways."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def order(self, what: dict[str, Any]) -> None:
        """Tell it what to do."""
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        await self.process.stdin.drain()

    async def answer(self) -> dict[str, Any]:
        """Wait for what it says."""
        async with asyncio.timeout(40):
            line = await self.process.stdout.readline()
        if not line:
            raise CheckFailed(f"the peer ended with {await self.process.wait()}")
        return json.loads(line)


@asynccontextmanager
async def _peer(device: str) -> AsyncIterator[Peer]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PEER),
        device,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    peer = Peer(process)
    try:
        await peer.answer()  # it is up: torch is imported
        yield peer
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def _control_plane() -> AsyncIterator[tuple[str, Rendezvous]]:
    rendezvous = Rendezvous()
    server = grpc.aio.server(options=server_options(2**21), interceptors=[ErrorInterceptor()])
    link_pb2_grpc.add_TokenLinkServicer_to_server(TokenLinkServicer(rendezvous), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", rendezvous
    finally:
        await server.stop(0)


async def _form(
    spec: LinkSpec, peer: Peer, lost: Lost, rendezvous: Rendezvous, device: str
) -> DraftReceiver:
    await peer.order({"form": [spec.name, spec.transport.value, spec.verifier_address]})
    receiver = await form.form_receiver(
        spec,
        on_lost=lost,
        vocab_size=1000,
        rendezvous=rendezvous,
        options=LinkOptions(device=device),
    )
    answer = await peer.answer()
    require("formed" in answer, f"the peer says {answer}")
    return receiver


async def _thread_ends(started: float) -> float:
    """Milliseconds from then until the link's thread has let go of everything."""
    for thread in threading.enumerate():
        if thread.name.startswith("link-"):
            await asyncio.to_thread(thread.join, 10)
            require(not thread.is_alive(), "the link's thread has not ended after 10 s")
    return round(1e3 * (time.monotonic() - started), 1)


def _spec(name: str, transport: Transport, address: str) -> LinkSpec:
    return LinkSpec(1, name, transport, 16, 4, 0, address, 20.0)


def _rows(sent_ns: int) -> tuple[DraftedRow, ...]:
    return tuple(DraftedRow(sent_ns, 5, (1, 2, 3, 4)) for _ in range(8))


def _age_us(packet: DraftPacket | None) -> float:
    require(packet is not None, "a packet did not come")
    return (time.monotonic_ns() - packet.rows[0].row_id) / 1e3


def _count(setting: Setting) -> int:
    return 50 if setting.is_short else 500


def _percentiles(times_us: list[float]) -> Figures:
    ordered = sorted(times_us)
    return {
        "p50_us": round(statistics.median(ordered)),
        "p99_us": round(ordered[int(0.99 * (len(ordered) - 1))]),
    }
