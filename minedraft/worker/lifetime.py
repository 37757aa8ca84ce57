"""The life of a worker process: it loads its model, serves, and stops.

A stop does not wait for a load, which nothing can interrupt; it waits for steps, which are short.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import structlog

from minedraft.exit import leave_behind
from minedraft.transport.channel import MAX_WORKER_MESSAGE_BYTES
from minedraft.transport.server import serve
from minedraft.worker.background import run_in_background
from minedraft.worker.heap import give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    import grpc

    from minedraft.security.credentials import Credentials
    from minedraft.transport.health import HealthServer
    from minedraft.transport.worker_service import DrafterServicer, VerifierServicer
    from minedraft.worker.config import WorkerConfig

R = TypeVar("R")
log = structlog.get_logger(__name__)

MAX_STEP_S = 60.0
"""Device work that takes longer counts as hanging: the process reports itself not alive."""


class Device(Protocol):
    """The part of `minedraft.model.executor.DeviceExecutor` that a lifetime needs."""

    @property
    def busy_s(self) -> float:
        """Seconds that the current device work has taken; 0: there is none."""

    def abandon(self) -> None:
        """Close without waiting for the current device work."""


async def _with_memory_given_back(work: Coroutine[Any, Any, R]) -> R:
    loaded = await work
    await run_in_background(give_back)
    return loaded


async def load(
    work: Coroutine[Any, Any, R], *, device: Device, stop: asyncio.Event | None
) -> R | None:
    """Wait for the first model, or until the worker must stop.

    Args:
        work: Loads it, on the device.
        device: Is abandoned if the worker is stopped: it must not be given more work.
        stop: See `serve_worker`; None: nothing but a signal's own effect stops it.

    Returns:
        What `work` returned; None: stopped.
    """
    work = _with_memory_given_back(work)
    if stop is None:
        return await work
    loading = asyncio.create_task(work, name="load")
    stopping = asyncio.create_task(stop.wait(), name="load.stop")
    both: tuple[asyncio.Task[Any], ...] = (loading, stopping)
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            return loading.result()
        log.info("load.stopped")
        device.abandon()
        leave_behind(lambda: device.busy_s > 0)
        return None
    finally:
        for task in both:
            task.cancel()
        await asyncio.wait(both)
        if not loading.cancelled():
            loading.exception()  # an abandoned load may fail without a reader of its error


async def serve_worker(
    servicer: DrafterServicer | VerifierServicer,
    *background: Callable[[], Coroutine[Any, Any, None]],
    config: WorkerConfig,
    credentials: Credentials,
    device: Device,
    facts: Mapping[str, str],
    ready: Callable[[str], None],
    stop: asyncio.Event | None,
    add_others: Callable[[grpc.aio.Server], tuple[str, ...]] = lambda _server: (),
) -> None:
    """Serve a worker with a loaded model until it must stop.

    Args:
        servicer: The role's.
        background: Loops that live as long as the server.
        config: Settings.
        credentials: Who we are and who may call what.
        device: Liveness goes when a step of it takes longer than `MAX_STEP_S`.
        facts: For the log line that says it is ready.
        ready: Called with the bound `host:port` once the port is open.
        stop: Ends it; None: signals do.
        add_others: Adds further servicers; returns their full names.

    Raises:
        ConfigError: an address cannot be bound.
        ExceptionGroup: what a background loop raised.
    """

    def register(server: grpc.aio.Server) -> tuple[str, ...]:
        return (servicer.register(server), *add_others(server))

    def on_bound(port: int, health: HealthServer | None) -> None:
        address = f"{config.listen.rpartition(':')[0]}:{port}"
        if health is not None:
            health.set_ready(ready=True)
        log.info("server.ready", address=address, **facts)
        ready(address)

    await serve(
        config.listen,
        register,
        *background,
        max_message_bytes=MAX_WORKER_MESSAGE_BYTES,
        credentials=credentials,
        health_address=config.health_listen,
        drain=servicer.sessions.drain,
        is_alive=lambda: device.busy_s < MAX_STEP_S,
        grace_s=config.grace_s,
        stop=stop,
        on_bound=on_bound,
    )
