"""Composition root of the verifier: config -> objects -> serve."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import ModelError
from minedraft.link.spec import LinkOptions
from minedraft.model.executor import DeviceExecutor
from minedraft.security.credentials import Credentials
from minedraft.security.roles import Role
from minedraft.services.verifier.handler import Handler
from minedraft.services.verifier.rank_cores import rank_cores, refuse_unusable
from minedraft.services.verifier.ranks import Ranks
from minedraft.services.verifier.verify_engine import VerifyEngine
from minedraft.transport.channel import MAX_WORKER_MESSAGE_BYTES
from minedraft.transport.rendezvous import Rendezvous
from minedraft.transport.server import serve
from minedraft.transport.token_link import SERVICE_NAME as TOKEN_LINK_SERVICE
from minedraft.transport.token_link import TokenLinkServicer
from minedraft.transport.worker_service import VerifierServicer, add_token_link
from minedraft.types import Acceptance
from minedraft.worker.identity import draw_identity

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    import grpc

    from minedraft.services.verifier.config import VerifierConfig
    from minedraft.transport.health import HealthServer

log = structlog.get_logger(__name__)

MAX_STEP_S = 60.0
"""Device work that takes longer hangs: liveness goes, and the process is restarted."""


async def run(
    config: VerifierConfig,
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
        ConfigError: an address cannot be bound, a certificate or token file not be used, or a rank
            not have its cores.
    """
    credentials = Credentials(config.security, own=(Role.VERIFIER,))
    cores = rank_cores(config.cpus, config.tp_size)
    if config.cpus:
        refuse_unusable(config.cpus, cores, os.sched_getaffinity(0))
    async with (
        DeviceExecutor(cores=cores[0], num_threads=config.threads) as executor,
        Ranks(config, executor) as ranks,
    ):
        runner = await ranks.load()
        if not runner.info.tokenizer_fingerprint:
            raise ModelError(f"{config.model}: has no tokenizer (tokenizer.json)")
        rendezvous = Rendezvous()
        handler = Handler(
            engine=VerifyEngine(runner, Acceptance(config.acceptance)),
            executor=executor,
            identity=draw_identity(),
            model=runner.info,
            acceptance=config.acceptance,
            rendezvous=rendezvous,
            link_options=LinkOptions(bind_host=config.link_bind_host, device=config.device),
            link_address=config.link_address,
        )
        servicer = VerifierServicer(handler)
        handler.push = servicer.sessions.push

        def register(server: grpc.aio.Server) -> tuple[str, ...]:
            add_token_link(TokenLinkServicer(rendezvous), server)
            return (servicer.register(server), TOKEN_LINK_SERVICE)

        def on_bound(port: int, health: HealthServer | None) -> None:
            address = f"{config.listen.rpartition(':')[0]}:{port}"
            if health is not None:
                health.set_ready(ready=True)
            log.info("ready", address=address, model=runner.info.name, dtype=runner.info.dtype)
            ready(address)

        try:
            await serve(
                config.listen,
                register,
                *ranks.background,
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
