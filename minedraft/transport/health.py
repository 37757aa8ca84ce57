"""Health on its own port, answered from threads of its own.

A busy event loop must not fail a probe, and a dead one must: the service is live while its loop's
heartbeat is young. `""` is liveness, the full service name is readiness (grpc.health.v1).
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from minedraft.errors import ConfigError
from minedraft.transport.channel import check_listen

if TYPE_CHECKING:
    from collections.abc import Callable

_OPTIONS = [
    ("grpc.so_reuseport", 0),
    # It is plaintext and open to everybody who can connect: it takes a probe and nothing bigger.
    ("grpc.max_receive_message_length", 1024),
    ("grpc.max_concurrent_streams", 16),
]
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class _HeartbeatServicer(health.HealthServicer):
    """The library's servicer; `Check` of "" also asks whether the heartbeat is young."""

    def __init__(self, is_alive: Callable[[], bool], pool: ThreadPoolExecutor) -> None:
        super().__init__(experimental_non_blocking=True, experimental_thread_pool=pool)
        self._is_alive = is_alive

    def Check(  # noqa: N802 gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Answer one probe."""
        if not self._is_alive():
            return health_pb2.HealthCheckResponse(status=_NOT_SERVING)
        return super().Check(request, context)


class HealthServer:
    """A small synchronous gRPC server beside the service.

    Args:
        address: `host:port`; port 0 picks one.
        services: Full names whose readiness is asked for.
        max_heartbeat_age_s: Older than this, the loop counts as dead.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        address: str,
        services: tuple[str, ...],
        *,
        max_heartbeat_age_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_listen("health_listen", address)
        self._services = services
        self._clock = clock
        self._max_age_s = max_heartbeat_age_s
        self._last_beat = clock()
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="health")
        self._servicer = _HeartbeatServicer(self._is_alive, self._pool)
        self._server = grpc.server(self._pool, options=_OPTIONS)
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)
        self._servicer.set("", _SERVING)
        self.set_ready(ready=False)
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError as err:
            raise ConfigError(f"health_listen={address!r}: cannot bind: {err}") from None
        self._server.start()

    def set_ready(self, *, ready: bool) -> None:
        """Set the readiness of all services."""
        for name in self._services:
            self._servicer.set(name, _SERVING if ready else _NOT_SERVING)

    def beat(self) -> None:
        """Say that the event loop turns."""
        self._last_beat = self._clock()

    async def run_heartbeat(
        self, period_s: float = 1.0, *, is_alive: Callable[[], bool] = lambda: True
    ) -> None:
        """Beat until cancelled, while the service says that it is alive."""
        while True:
            if is_alive():
                self.beat()
            await asyncio.sleep(period_s)

    def stop(self) -> None:
        """Stop answering."""
        self._servicer.enter_graceful_shutdown()
        self._server.stop(0)
        self._pool.shutdown(wait=False)

    def _is_alive(self) -> bool:
        return self._clock() - self._last_beat <= self._max_age_s
