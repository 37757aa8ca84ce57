"""Answers health checks on a port and threads of its own.

A busy event loop must not fail a probe, and a dead one must: the service is live while its loop's
heartbeat is young. `""` is liveness, the full service name is readiness (grpc.health.v1).
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from minedraft.errors import ConfigError
from minedraft.security.address import check_free, check_listen
from minedraft.transport.channel import server_options
from minedraft.transport.limits import HEALTH_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_PROBE_BYTES = 1024
"""Largest message: the port is plaintext and open to all, and a probe is small."""
_MAX_CALLS = 64
_STOP_S = 2.0
"""Longest wait for the end of calls that were just cancelled; a few milliseconds as a rule."""
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
_MAX_WATCHERS = 12
"""Most watchers; each holds a thread, and four more threads answer probes."""
_WATCH_TURN_S = 1.0
"""Seconds between two checks whether a watcher's client still exists."""


class _Servicer(health_pb2_grpc.HealthServicer):
    """Serves Check and Watch from a table of statuses; changing one never waits.

    The library's own servicer sends from inside `set`, under a lock that the threads which complete
    a send want too: called from an event loop it can block it for ever.
    """

    def __init__(self, is_alive: Callable[[], bool]) -> None:
        self._is_alive = is_alive
        self._statuses: dict[str, int] = {"": _SERVING}
        self._changed = threading.Condition()
        self._num_watchers = 0
        self._is_closed = False

    def set(self, service: str, status: int) -> None:
        """Change a status; the watchers' own threads send it."""
        with self._changed:
            self._statuses[service] = status
            self._changed.notify_all()

    def close(self) -> None:
        """Set every status to not serving, and end the watchers after they have sent it."""
        with self._changed:
            self._statuses = dict.fromkeys(self._statuses, _NOT_SERVING)
            self._is_closed = True
            self._changed.notify_all()

    def Check(  # noqa: N802 gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Answer one probe."""
        status = self._status(request.service)
        if status is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return health_pb2.HealthCheckResponse(status=status)

    def Watch(  # noqa: N802 gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> Iterator[health_pb2.HealthCheckResponse]:
        """Send the status now and after every change."""
        with self._changed:
            is_full = self._num_watchers >= _MAX_WATCHERS
            self._num_watchers += not is_full
        if is_full:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_WATCHERS} watch already")
        try:
            last: int | None = None
            while context.is_active():
                with self._changed:
                    status = self._status(request.service)
                    status = _UNKNOWN if status is None else status
                    if status == last:
                        if self._is_closed:
                            return
                        self._changed.wait(_WATCH_TURN_S)
                        continue
                last = status
                yield health_pb2.HealthCheckResponse(status=status)
        finally:
            with self._changed:
                self._num_watchers -= 1

    def _status(self, service: str) -> int | None:
        status = self._statuses.get(service)
        return status if status is None or self._is_alive() else _NOT_SERVING


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
        self._pool = ThreadPoolExecutor(_MAX_WATCHERS + 4, thread_name_prefix="health")
        self._servicer = _Servicer(self._is_alive)
        self._server = grpc.server(
            self._pool,
            options=server_options(_MAX_PROBE_BYTES, HEALTH_LIMITS),
            maximum_concurrent_rpcs=_MAX_CALLS,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)
        self.set_ready(ready=False)
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError as err:
            check_free("health_listen", address)  # says why
            raise ConfigError(f"health_listen={address!r}: cannot bind: {err}") from None
        self._server.start()

    def set_ready(self, *, ready: bool) -> None:
        """Set the readiness of all services."""
        for name in self._services:
            self._servicer.set(name, _SERVING if ready else _NOT_SERVING)

    def beat(self) -> None:
        """Record that the event loop runs."""
        self._last_beat = self._clock()

    async def run_heartbeat(
        self, period_s: float = 1.0, *, is_alive: Callable[[], bool] = lambda: True
    ) -> None:
        """Beat until cancelled, as long as the service reports itself alive."""
        while True:
            if is_alive():
                self.beat()
            await asyncio.sleep(period_s)

    def stop(self) -> None:
        """Stop answering."""
        self._servicer.close()
        # The server's own thread hands a call to the pool until it has stopped.
        self._server.stop(0).wait(_STOP_S)
        self._pool.shutdown(wait=False)

    def _is_alive(self) -> bool:
        return self._clock() - self._last_beat <= self._max_age_s
