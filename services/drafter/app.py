"""Composition root of the drafter: config -> objects -> serve."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import ModelError
from minedraft.identity import draw_identity
from minedraft.link.options import LinkOptions
from minedraft.model.executor import DeviceExecutor
from minedraft.security.credentials import Credentials
from minedraft.security.roles import Role
from minedraft.services.drafter.handler import Handler
from minedraft.services.drafter.model_source import ModelSource
from minedraft.services.drafter.run_ahead import parse_run_ahead
from minedraft.transport.worker_service import DrafterServicer
from minedraft.worker.cores import parse_cores
from minedraft.worker.lifetime import load, serve_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.link.local import LocalNetwork
    from minedraft.services.drafter.config import DrafterConfig

log = structlog.get_logger(__name__)

_USAGE_PERIOD_S = 1.0


async def run(
    config: DrafterConfig,
    *,
    ready: Callable[[str], None] = lambda _address: None,
    stop: asyncio.Event | None = None,
    network: LocalNetwork | None = None,
) -> None:
    """Load, then serve until stopped; a stop does not wait for the load.

    Args:
        config: Settings.
        ready: Called with the bound `host:port` once the model is loaded and the port open.
        stop: Ends it, for tests; otherwise signals do.
        network: Where `local` links meet, for tests; None: it has none.

    Raises:
        ModelError: the model cannot be served.
        ConfigError: an address cannot be bound, or a certificate or token file not be used.
    """
    credentials = Credentials(config.security, own=(Role.DRAFTER,))
    async with DeviceExecutor(
        cores=parse_cores(config.cpus), num_threads=config.threads
    ) as executor:
        log.info("model.loading", model=config.model)
        link_options = LinkOptions(
            bind_host=config.link_bind_host,
            device=config.device,
            credentials=credentials,
            network=network,
        )
        handler = await load(_handler(config, executor, link_options), device=executor, stop=stop)
        if handler is None:
            return
        servicer = DrafterServicer(handler)
        handler.push = servicer.sessions.push

        async def report_usage() -> None:
            while True:
                if servicer.sessions.is_connected and not servicer.sessions.has_unsent:
                    servicer.sessions.push(await handler.usage())
                await asyncio.sleep(_USAGE_PERIOD_S)

        try:
            await serve_worker(
                servicer,
                report_usage,
                config=config,
                credentials=credentials,
                device=executor,
                facts={
                    "model": handler.info().model.name,
                    "dtype": handler.info().model.dtype,
                    "kernels": handler.info().model.kernels,
                    "kind": config.kind,
                },
                ready=ready,
                stop=stop,
            )
        finally:
            handler.close()


async def _handler(
    config: DrafterConfig, executor: DeviceExecutor, link_options: LinkOptions
) -> Handler:
    """Load the first model. The handler alone holds it, and lets it go when another one drafts."""
    source = ModelSource(config)
    runner = await executor.run(source.first)
    if not runner.info.tokenizer_fingerprint:
        raise ModelError(f"{config.model}: has no tokenizer (tokenizer.json)")
    return Handler(
        runner=runner,
        kind=config.kind,
        max_catch_up_tokens=config.max_catch_up_tokens,
        prefix_cache=config.prefix_cache,
        run_ahead=parse_run_ahead(config.run_ahead),
        loader=source,
        executor=executor,
        identity=draw_identity(),
        link_options=link_options,
    )
