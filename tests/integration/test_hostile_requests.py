"""Hostile requests to a running coordinator, and how long its event loop stands still for each."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import grpc
import pytest

from tests.hostile_requests import WIRE, requests
from tests.integration.cluster import cluster
from tests.tiny_models import make_tiny_llama

GENERATE = "/minedraft.v1.Generation/Generate"
MAX_MODEL_LEN = 4096
MAX_GAP_S = 0.05
ATTEMPTS = 3
"""A machine that does something else makes gaps as well: the smallest counts."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny_llama(
        tmp_path_factory.mktemp("hostile"), max_len=MAX_MODEL_LEN, hidden=16, layers=1
    )


@dataclass
class Pulse:
    """The longest that the event loop did not come round, and did work of its own meanwhile."""

    longest_s: float = 0.0

    async def beat(self) -> None:
        """Measure in time of this thread: what other processes take is not the loop's doing."""
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - last)
            last = now


@asynccontextmanager
async def beating(pulse: Pulse):
    task = asyncio.create_task(pulse.beat())
    try:
        yield
    finally:
        task.cancel()


async def ask(channel, data: bytes) -> grpc.StatusCode:
    """Send bytes; read the answer, and give up after some events of it."""
    call = channel.unary_stream(GENERATE)(data)
    try:
        for _ in range(60):
            if await call.read() is grpc.aio.EOF:
                break
        call.cancel()
        return grpc.StatusCode.OK
    except grpc.aio.AioRpcError as err:
        return err.code()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_no_request_holds_the_event_loop_for_longer_than_50_ms(model):
    hostile = {**WIRE, **requests(MAX_MODEL_LEN, longest_token=280)}
    known = dict.fromkeys(hostile, 0.0)
    more = lambda config: replace(config, max_waiting_requests=64)
    async with (
        cluster(model, num_blocks=1100, mode=(2, 4, 0), coordinator=more) as running,
        grpc.aio.insecure_channel(running.coordinator.address) as channel,
    ):
        stream = running.client.stream([5, 6], max_tokens=4000, temperature=0, ignore_eos=True)

        async def watch() -> None:
            async for _ in stream:
                pass

        watched = asyncio.create_task(watch())
        for name, data in hostile.items():
            gaps = []
            for _ in range(ATTEMPTS):
                pulse = Pulse()
                async with beating(pulse):
                    code = await ask(channel, data)
                assert code in {
                    grpc.StatusCode.OK,
                    grpc.StatusCode.INVALID_ARGUMENT,
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                }, name
                gaps.append(pulse.longest_s)
                if gaps[-1] < MAX_GAP_S:
                    break
            known[name] = min(gaps)
        watched.cancel()
        await asyncio.wait((watched,))
        slow = {name: gap for name, gap in known.items() if gap > MAX_GAP_S}
        assert not slow
