"""Many open HTTP streams at one gateway: errors, memory, and when it is ready.

usage: python benchmarks/http_streams.py [--streams 500] [--tokens 10]

The coordinator is the double of the tests, in this process: one token per stream and second. The
gateway is a process of its own, as `minedraft gateway` starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from minedraft.api import Delta, Event, Finished, GenerationRequest, Started  # noqa: E402
from minedraft.cli.child import Child  # noqa: E402
from minedraft.types import FinishReason  # noqa: E402
from tests.fake_coordinator import FakeCoordinator, serve  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TARGETS = {"ready_s": 2.0, "idle_mb": 120.0, "open_mb": 300.0, "failed": 0}


class SlowCoordinator(FakeCoordinator):
    """One token per second and stream."""

    num_tokens = 10

    async def _events(self, _request: GenerationRequest) -> AsyncIterator[Event]:
        yield Started("r", 7, 3)
        for index in range(self.num_tokens):
            await asyncio.sleep(1)
            yield Delta(0, (index,), f"w{index} ")
        yield Finished(0, FinishReason.LENGTH)


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def stream(address: str, num_tokens: int) -> bool:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"prompt": "hi", "stream": True, "max_tokens": num_tokens}).encode()
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    )
    answer = await reader.read(-1)
    writer.close()
    return answer.count(b'"finish_reason": "length"') == 1 and b"[DONE]" in answer


async def ready(address: str) -> None:
    host, _, port = address.rpartition(":")
    while True:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = await reader.read(-1)
        writer.close()
        if b" 200 " in answer.partition(b"\r\n")[0]:
            return
        await asyncio.sleep(0.02)


async def main(num_streams: int, num_tokens: int) -> dict[str, float]:
    fake = SlowCoordinator()
    fake.num_tokens = num_tokens
    async with serve(fake):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        begin = time.monotonic()
        child = await Child.start(
            "gateway",
            ["gateway", "--log-json"],
            settings={"listen": address, "coordinator": fake.address},
            log=Path("/tmp/http_streams.log"),  # noqa: S108
            env={},
        )
        try:
            await child.ready()
            await ready(address)
            ready_s = time.monotonic() - begin
            pid = child._process.pid  # noqa: SLF001
            idle_mb = rss_mb(pid)
            tasks = [asyncio.create_task(stream(address, num_tokens)) for _ in range(num_streams)]
            open_mb = 0.0
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0.5)
                open_mb = max(open_mb, rss_mb(pid))
            failed = sum(not task.result() for task in tasks)
            await asyncio.sleep(2)
            first_mb = rss_mb(pid)
            tasks = [asyncio.create_task(stream(address, 1)) for _ in range(num_streams)]
            await asyncio.wait(tasks)
            await asyncio.sleep(2)
            return {
                "ready_s": ready_s, "idle_mb": idle_mb, "open_mb": open_mb, "failed": failed,
                "left_mb": first_mb, "left_again_mb": rss_mb(pid),
                "cpu_s": cpu_s(pid),
            }  # fmt: skip
        finally:
            await child.stop(grace_s=5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=10)
    options = parser.parse_args()
    found = asyncio.run(main(options.streams, options.tokens))
    for name, value in found.items():
        most = TARGETS.get(name)
        told = (
            ""
            if most is None
            else f"  target: at most {most:g}, " + ("met" if value <= most else "MISSED")
        )
        print(f"{name:14s} {value:10.2f}{told}")
    sys.exit(any(found[name] > most for name, most in TARGETS.items()))
