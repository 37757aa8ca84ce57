from __future__ import annotations

import asyncio
import dataclasses
import socket
import threading
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from minedraft.errors import ConfigError
from minedraft.transport import health as health_module
from minedraft.transport.channel import open_channel
from minedraft.transport.health import HealthServer
from minedraft.transport.limits import HEALTH_LIMITS
from tests import h2

NAME = "minedraft.v1.Generation"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def served(**kwargs):
    health = HealthServer("127.0.0.1:0", (NAME,), **kwargs)
    try:
        yield health
    finally:
        health.stop()


def probe(health: HealthServer, name: str = "") -> int:
    with grpc.insecure_channel(f"127.0.0.1:{health.port}") as channel:
        request = health_pb2.HealthCheckRequest(service=name)
        return health_pb2_grpc.HealthStub(channel).Check(request, timeout=5).status


def test_a_new_server_is_live_and_not_ready():
    with served() as health:
        assert probe(health) == SERVING
        assert probe(health, NAME) == NOT_SERVING


def test_readiness_follows_the_service_and_liveness_does_not():
    with served() as health:
        health.set_ready(ready=True)
        assert (probe(health), probe(health, NAME)) == (SERVING, SERVING)
        health.set_ready(ready=False)
        assert (probe(health), probe(health, NAME)) == (SERVING, NOT_SERVING)


def test_an_unknown_service_is_not_found():
    with served() as health, pytest.raises(grpc.RpcError) as caught:
        probe(health, "minedraft.v1.Nothing")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_an_old_heartbeat_is_a_dead_loop_and_a_new_one_revives_it():
    clock = Clock()
    with served(clock=clock, max_heartbeat_age_s=30.0) as health:
        health.set_ready(ready=True)
        clock.now += 30.0
        assert (probe(health), probe(health, NAME)) == (SERVING, SERVING)
        clock.now += 0.1
        assert (probe(health), probe(health, NAME)) == (NOT_SERVING, NOT_SERVING)
        health.beat()
        assert (probe(health), probe(health, NAME)) == (SERVING, SERVING)


async def test_probes_are_answered_while_the_loop_is_blocked():
    with served() as health:
        health.set_ready(ready=True)
        answers = []
        prober = threading.Thread(target=lambda: answers.append(probe(health, NAME)))
        prober.start()
        prober.join(10)  # the loop stands still here until the probe was answered
        assert answers == [SERVING]


async def test_the_heartbeat_beats_until_it_is_cancelled(monkeypatch):
    clock = Clock()
    with served(clock=clock, max_heartbeat_age_s=1.0) as health:
        beats: asyncio.Queue[float] = asyncio.Queue()
        beat = health.beat
        monkeypatch.setattr(health, "beat", lambda: (beat(), beats.put_nowait(clock.now)))
        async with asyncio.timeout(5):
            beating = asyncio.create_task(health.run_heartbeat(period_s=0.001))
            for _ in range(3):
                clock.now += 50
                while await beats.get() != clock.now:
                    pass
                assert health._is_alive()
            beating.cancel()
            await asyncio.wait([beating])
        assert beating.cancelled()


def test_a_port_in_use_is_refused_by_name():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"health_listen='{address}'"):
            HealthServer(address, (NAME,))


def test_after_stop_nobody_answers():
    with served() as health:
        assert probe(health) == SERVING
        health.stop()
        with pytest.raises(grpc.RpcError) as caught:
            probe(health)
        # CANCELLED: the connection was made as the port was on its way down.
        assert caught.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


def test_many_watchers_do_not_starve_a_probe():
    with served() as health, grpc.insecure_channel(f"127.0.0.1:{health.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=NAME)
        watchers = [stub.Watch(request, timeout=10) for _ in range(12)]
        assert [next(watcher).status for watcher in watchers] == [NOT_SERVING] * 12
        assert probe(health) == SERVING
        health.set_ready(ready=True)
        assert [next(watcher).status for watcher in watchers] == [SERVING] * 12
        for watcher in watchers:
            watcher.cancel()


CHECK = "/grpc.health.v1.Health/Check"


@pytest.mark.parametrize("says", [b"", h2.HELLO, h2.HELLO + h2.call(CHECK)],
                         ids=["nothing", "HTTP/2", "a call without a message"])  # fmt: skip
async def test_it_answers_while_strangers_hold_connections_and_calls(monkeypatch, says):
    quick = dataclasses.replace(HEALTH_LIMITS, idle_ms=500, handshake_ms=500, max_age_ms=1_000)
    monkeypatch.setattr(health_module, "HEALTH_LIMITS", quick)
    with served() as health:
        held = [await h2.connect(health.port, says) for _ in range(quick.max_connections * 2)]
        async with open_channel(f"127.0.0.1:{health.port}") as channel:
            check = channel.unary_unary(CHECK)
            answer = await check(b"", timeout=10, wait_for_ready=True)
        assert health_pb2.HealthCheckResponse.FromString(answer).status == SERVING
        for _reader, writer in held:
            writer.close()
