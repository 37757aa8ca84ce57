"""Composition root of the gateway: config -> objects -> serve."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn
import uvloop

from minedraft.errors import ConfigError
from minedraft.security.address import check_free
from minedraft.security.credentials import Credentials
from minedraft.services.gateway.connections import connection_class, look_after
from minedraft.services.gateway.door import Door
from minedraft.services.gateway.routes import build
from minedraft.services.gateway.site import Site
from minedraft.services.gateway.tls import RotatingContext
from minedraft.services.gateway.upstream import Upstream
from minedraft.transport.limits import raise_open_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.services.gateway.config import GatewayConfig

log = structlog.get_logger(__name__)

_BACKLOG = 2048
_LAST_BYTES_S = 2
"""Time after the drain for the last answers to be read."""
new_event_loop = uvloop.new_event_loop
"""What the command line runs the gateway on."""


async def run(
    config: GatewayConfig,
    *,
    ready: Callable[[str], None] = lambda _address: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until stopped.

    Args:
        config: Settings.
        ready: Called with the bound `host:port`; the coordinator may come later.
        stop: Ends it, for tests; otherwise signals do.

    Raises:
        ConfigError: the address cannot be bound, or a certificate or token file not be used.
    """
    credentials = Credentials(config.security)
    context = RotatingContext.of(config.security) if config.security.tls_cert else None
    raise_open_files()
    stopping = stop or asyncio.Event()
    site = Site(config, Upstream(config))
    bound = _bind(config.listen)
    address = f"{config.listen.rpartition(':')[0]}:{bound.getsockname()[1]}"
    logging.getLogger("uvicorn.error").disabled = True  # this service has a log of its own
    server = _Server(
        uvicorn.Config(
            Door(build(site), credentials),
            http=connection_class(config.max_connections),
            loop="none",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_LAST_BYTES_S,
            ssl_context_factory=None if context is None else lambda _config, _default: context,
        ),
        lambda: ready(address),
    )
    credentials.watch()
    try:
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(site.upstream.run(), name="upstream"),
                group.create_task(
                    look_after(server.server_state.connections, config.slow_reader_s),
                    name="connections",
                ),
            ]
            if context is not None:
                background.append(group.create_task(context.follow(credentials), name="tls"))
            serving = group.create_task(server.serve(sockets=[bound]), name="server")
            serving.add_done_callback(lambda _task: stopping.set())
            log.info("server.started", address=address)
            await stopping.wait()
            log.info("server.draining")
            await site.drain()
            server.should_exit = True
            await serving
            for task in background:
                task.cancel()
    finally:
        credentials.close()
        bound.close()
        log.info("server.stopped")


class _Server(uvicorn.Server):  # type: ignore[misc]  # typed loosely where it is missing
    """uvicorn without its signals: the command line has them.

    Args:
        config: Settings of uvicorn.
        on_started: Called once the port is open.
    """

    def __init__(self, config: Any, on_started: Callable[[], None]) -> None:  # noqa: ANN401
        super().__init__(config)
        self._on_started = on_started

    def capture_signals(self) -> AbstractContextManager[None]:
        """Capture none."""
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the port."""
        await super().startup(sockets)
        self._on_started()


def _bind(address: str) -> socket.socket:
    """Bind `host:port`.

    Raises:
        ConfigError: in use, or not an address of this machine.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        bound = socket.socket(found[0])
    except OSError:
        check_free("listen", address)  # says why
        raise ConfigError(f"listen={address!r}: cannot bind") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(found[4])
        bound.listen(_BACKLOG)
        bound.setblocking(False)
    except OSError:
        bound.close()
        check_free("listen", address)  # says why
        raise ConfigError(f"listen={address!r}: cannot bind") from None
    return bound
