"""Start, drain and stop a service, by a signal or an event."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import grpc
import structlog
from grpc_reflection.v1alpha import reflection

from minedraft.errors import ConfigError
from minedraft.security.address import check_free, check_listen
from minedraft.security.config import SecurityConfig, is_loopback
from minedraft.security.credentials import Credentials
from minedraft.security.interceptor import AuthInterceptor
from minedraft.transport.channel import server_options
from minedraft.transport.first_message import FirstMessageInterceptor
from minedraft.transport.health import HealthServer
from minedraft.transport.limits import MAX_CALLS
from minedraft.transport.slow_reader import SlowReaderInterceptor
from minedraft.transport.status import ErrorInterceptor, abort

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

log = structlog.get_logger(__name__)


def bind(server: grpc.aio.Server, address: str, credentials: Credentials | None = None) -> int:
    """Bind `host:port`, under TLS if the credentials have a certificate.

    Returns:
        The port.

    Raises:
        ConfigError: in use, or not an address of this machine.
    """
    check_listen("listen", address)
    try:
        if credentials is not None and credentials.config.tls_cert:
            port = int(server.add_secure_port(address, credentials.server_credentials()))
        else:
            port = int(server.add_insecure_port(address))
    except RuntimeError:
        port = 0
    if port == 0:
        check_free("listen", address)  # says why
        raise ConfigError(f"listen={address!r}: cannot bind")
    return port


def _interceptors(credentials: Credentials) -> list[grpc.aio.ServerInterceptor]:
    """Return the interceptors of every call, outermost first."""
    auth = [AuthInterceptor(credentials)] if credentials.config.authenticates else []
    return [ErrorInterceptor(), *auth, SlowReaderInterceptor(abort), FirstMessageInterceptor()]


async def serve(
    address: str,
    register: Callable[[grpc.aio.Server], tuple[str, ...]],
    *background: Callable[[], Coroutine[Any, Any, None]],
    max_message_bytes: int,
    credentials: Credentials | None = None,
    health_address: str | None = None,
    drain: Callable[[], Awaitable[None]] | None = None,
    is_alive: Callable[[], bool] = lambda: True,
    grace_s: float = 10.0,
    stop: asyncio.Event | None = None,
    on_bound: Callable[[int, HealthServer | None], None] = lambda _port, _health: None,
) -> None:
    """Serve until SIGTERM, SIGINT, `stop`, or the first background failure.

    Args:
        address: `host:port`; port 0 picks a free one and reports it to `on_bound`.
        register: Adds the servicers; returns their full names for reflection and readiness.
        background: Loops that live exactly as long as the server.
        max_message_bytes: Largest message either way.
        credentials: Who we are and who may call what; None: plaintext for everybody on loopback.
        health_address: Where health is answered; None: nowhere.
        drain: Awaited first when stopping: refuse new work, let what runs end; bounds itself.
        is_alive: False: something hangs that the event loop does not see (a device); liveness goes.
        grace_s: Seconds in-flight RPCs get to finish.
        stop: Set it to stop from a test; signals are then left alone.
        on_bound: Called once, with the bound port and the health server.

    Raises:
        ConfigError: an address cannot be bound, or may not without credentials.
        ExceptionGroup: what a background loop raised. A loop that *returns* is also a stop.
    """
    stopping = stop or asyncio.Event()
    if stop is None:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, stopping.set)
    credentials = credentials or Credentials(SecurityConfig())
    credentials.config.check_server("listen", address)
    server = grpc.aio.server(
        options=server_options(max_message_bytes),
        interceptors=_interceptors(credentials),
        maximum_concurrent_rpcs=MAX_CALLS,
    )
    names = register(server)
    if credentials.config.authenticates or is_loopback(address):
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
    credentials.watch()
    # Health first: a server that was bound and never started keeps its port.
    health = HealthServer(health_address, names) if health_address else None
    try:
        port = bind(server, address, credentials)
        await server.start()
        on_bound(port, health)
        log.info("server.started", address=address, port=port)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(), name=run.__qualname__) for run in background]
            for task in tasks:
                task.add_done_callback(lambda _task: stopping.set())
            if health is not None:
                tasks.append(
                    group.create_task(health.run_heartbeat(is_alive=is_alive), name="heartbeat")
                )
            await stopping.wait()
            if health is not None:
                health.set_ready(ready=False)
            log.info("server.draining")
            if drain is not None:
                await drain()
            await server.stop(grace_s)
            for task in tasks:
                task.cancel()
    finally:
        credentials.close()
        await server.stop(0)
        if health is not None:
            health.stop()
        log.info("server.stopped")
