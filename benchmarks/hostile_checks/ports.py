"""Kinds 2, 6, 7: what strangers do to ports: bombs, silent connections, calls without a message."""

from __future__ import annotations

import asyncio
import resource
import socket
import statistics
import struct
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from fleet import until

from hostile_checks.requests import GENERATE
from hostile_checks.stage import is_linked
from minedraft.client import NO_RETRIES, Client
from minedraft.v1 import generation_pb2 as pb

if TYPE_CHECKING:
    from hostile_checks.stage import Stage, Trial

_MIB = 2**20
_BOMB = 256 * _MIB
_BOMBED = {
    "coordinator": "/minedraft.v1.Generation/Abort",
    "verifier": "/minedraft.v1.TokenLink/SetKey",
    "drafter": "/minedraft.v1.Drafter/LoadModel",
}
_MOST_GROWTH_MIB = 64.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
_NUM_CONNECTIONS, _NUM_SILENT_CALLS, _NUM_SLOW_READERS = 2000, 500, 200
_FIRST_TOKENS = 15
_BACK_S = 60.0


async def gzip_bombs(stage: Stage) -> None:
    """A message of 256 MiB of zeros, compressed, to every role, without a token."""
    zeros = bytes(_BOMB)
    growth: dict[str, float] = {}
    answers = set()
    async with stage.trial("gzip bombs") as trial:
        for role, method in _BOMBED.items():
            before = trial.peak_bytes(role)
            for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
                options = [("grpc.max_send_message_length", -1)]
                address = trial.fleet.services[role].address
                async with grpc.aio.insecure_channel(address, options=options) as channel:
                    call = channel.unary_unary(method)
                    try:
                        await call(zeros, compression=compression, timeout=30)
                        answers.add("SERVED")
                    except grpc.aio.AioRpcError as err:
                        answers.add(err.code().name)
            growth[role] = (trial.peak_bytes(role) - before) / _MIB
    stage.say("gzip bombs: most growth of a service's memory, MiB", max(growth.values()),
              _MOST_GROWTH_MIB, detail=f"{growth}; {sorted(answers)}")  # fmt: skip


async def crowded_ports(stage: Stage) -> None:
    """Idle connections, calls without a message, slow readers: a new client's first token."""
    async with stage.trial("crowded ports", has_load=False) as trial:
        before = [await _first_token_s(trial.fleet.address) for _ in range(_FIRST_TOKENS)]
        host, _, port = trial.fleet.address.rpartition(":")
        with ExitStack() as stack:
            num_open = 0
            for _ in range(_NUM_CONNECTIONS):
                connection = stack.enter_context(socket.socket())
                connection.settimeout(1.0)
                try:
                    connection.connect((host, int(port)))
                    connection.sendall(_PREFACE)
                except OSError:
                    continue
                num_open += 1
            async with grpc.aio.insecure_channel(trial.fleet.address) as channel:
                silent = [channel.stream_stream(GENERATE)() for _ in range(_NUM_SILENT_CALLS)]
                slow = [
                    channel.unary_stream(GENERATE)(_endless(), timeout=120)
                    for _ in range(_NUM_SLOW_READERS)
                ]
                await asyncio.sleep(2.0)
                during = [await _first_token_s(trial.fleet.address) for _ in range(_FIRST_TOKENS)]
                for call in (*silent, *slow):
                    call.cancel()
        async with asyncio.timeout(_BACK_S):
            await until(trial.watcher, lambda s: s.is_idle)
    ratio = statistics.median(during) / statistics.median(before)
    stage.say(
        f"{_NUM_CONNECTIONS} idle connections, {_NUM_SILENT_CALLS} calls without a message, "
        f"{_NUM_SLOW_READERS} slow readers: a new client's first token over undisturbed",
        ratio,
        2.0,
        detail=f"{num_open} connections were taken; {1e3 * statistics.median(before):.0f} ms, then "
        f"{1e3 * statistics.median(during):.0f}, at most {1e3 * max(during):.0f}",
    )


def _endless() -> bytes:
    """Serialise a request whose answer is never read; small, so that it leaves the batch soon."""
    request = pb.GenerateRequest(token_ids={"ids": [5, 6, 7]})
    request.sampling.max_tokens = 4
    request.sampling.ignore_eos = True
    return request.SerializeToString()


async def _first_token_s(address: str) -> float:
    """Time from nothing, the connection included, until a new client has a token."""
    began = time.monotonic()
    async with await Client.connect(address, retry=NO_RETRIES, timeout_s=60.0) as client:
        await client.generate([5, 6, 7], max_tokens=1, temperature=0.0, timeout_s=60.0)
        return time.monotonic() - began


async def link_strangers(stage: Stage) -> None:
    """Fill the link's port of both workers with connections that say nothing."""
    async with stage.trial("link strangers", coordinator=("--link=gloo",)) as trial:
        num_taken = 0
        for role in ("drafter", "verifier"):
            num_taken += await _fill(trial, role)
        await until(trial.watcher, is_linked)
        await trial.drafts_again()
        ended = [role for role, s in trial.fleet.services.items() if s.num_lives != 1]
        gone = [w.role for w in (await trial.watcher.status()).workers if not w.connected]
    stage.say("link strangers: processes that ended", len(ended) + len(gone), 0,
              detail=f"{num_taken} connections were taken")  # fmt: skip


async def _fill(trial: Trial, role: str) -> int:
    service = trial.fleet.services[role]
    own = int(service.address.rpartition(":")[2])
    ports = [port for port in _listening(service.pid) if port != own]
    limit = service.figures()["fds"] + 40
    soft, hard = resource.prlimit(service.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (limit, hard))
    num_taken = 0
    with ExitStack() as stack:
        for port in ports:
            for number in range(120):
                connection = stack.enter_context(socket.socket())
                connection.settimeout(0.3)
                try:
                    connection.connect(("127.0.0.1", port))
                    if number % 2:
                        connection.sendall(struct.pack("<q", number))
                except OSError:
                    break
                num_taken += 1
        await asyncio.sleep(2.0)
    resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (soft, hard))
    return num_taken


def _listening(pid: int) -> list[int]:
    """TCP ports on which a process listens."""
    mine = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            mine.add(str(entry.readlink()))
        except OSError:
            continue
    ports = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                ports.append(int(fields[1].rpartition(":")[2], 16))
    return sorted(set(ports))
