"""Composition root of the drafter: config -> objects -> serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from minedraft.errors import ModelError
from minedraft.link.spec import LinkOptions
from minedraft.model.executor import DeviceExecutor
from minedraft.security.credentials import Credentials
from minedraft.security.roles import Role
from minedraft.services.drafter.config import DrafterKind
from minedraft.services.drafter.handler import Handler
from minedraft.services.drafter.model_source import ModelSource
from minedraft.transport.channel import MAX_WORKER_MESSAGE_BYTES
from minedraft.transport.server import serve
from minedraft.transport.worker_service import DrafterServicer
from minedraft.worker.cores import parse_cores
from minedraft.worker.identity import draw_identity

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    import grpc

    from minedraft.services.drafter.config import DrafterConfig
    from minedraft.transport.health import HealthServer

log = structlog.get_logger(__name__)

MAX_STEP_S = 60.0
"""Device work that takes longer hangs: liveness goes, and the process is restarted."""


async def run(
    config: DrafterConfig,
    *,
    ready: Callable[[str], None] = lambda _address: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until stopped.

    Args:
        config: Settings.
        ready: Called with the bound `host:port` once the model is loaded and the port open.
        stop: Ends it, for tests; otherwise signals do.

    Raises:
        ModelError: the model cannot be served.
        ConfigError: an address cannot be bound, or a certificate or token file not be used.
    """
    credentials = Credentials(config.security, own=(Role.DRAFTER,))
    async with DeviceExecutor(
        cores=parse_cores(config.cpus), num_threads=config.threads
    ) as executor:
        handler = await _handler(config, executor, credentials)
        servicer = DrafterServicer(handler)
        handler.push = servicer.sessions.push

        def register(server: grpc.aio.Server) -> tuple[str, ...]:
            return (servicer.register(server),)

        def on_bound(port: int, health: HealthServer | None) -> None:
            address = f"{config.listen.rpartition(':')[0]}:{port}"
            if health is not None:
                health.set_ready(ready=True)
            log.info("ready", address=address, model=handler.info().model.name, kind=config.kind)
            ready(address)

        try:
            await serve(
                config.listen,
                register,
                max_message_bytes=MAX_WORKER_MESSAGE_BYTES,
                credentials=credentials,
                health_address=config.health_listen,
                drain=servicer.sessions.drain,
                is_alive=lambda: executor.busy_s < MAX_STEP_S,
                grace_s=config.grace_s,
                stop=stop,
                on_bound=on_bound,
            )
        finally:
            handler.close()


async def _handler(
    config: DrafterConfig, executor: DeviceExecutor, credentials: Credentials
) -> Handler:
    """Load the first model. The handler alone holds it, and lets it go when another one drafts."""
    source = ModelSource(config)
    runner = await executor.run(source.first)
    if not runner.info.tokenizer_fingerprint:
        raise ModelError(f"{config.model}: has no tokenizer (tokenizer.json)")
    return Handler(
        runner=runner,
        kind=DrafterKind(config.kind),
        max_catch_up_tokens=config.max_catch_up_tokens,
        loader=source,
        executor=executor,
        identity=draw_identity(),
        link_options=LinkOptions(
            bind_host=config.link_bind_host, device=config.device, credentials=credentials
        ),
    )
