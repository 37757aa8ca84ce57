"""Composition root of the verifier: config -> objects -> serve."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import ModelError
from minedraft.identity import draw_identity
from minedraft.link.options import LinkOptions
from minedraft.model.executor import DeviceExecutor
from minedraft.security.credentials import Credentials
from minedraft.security.roles import Role
from minedraft.services.verifier.handler import Handler
from minedraft.services.verifier.rank_cores import rank_cores, refuse_unusable
from minedraft.services.verifier.ranks import Ranks
from minedraft.services.verifier.verify_engine import VerifyEngine
from minedraft.transport.rendezvous import Rendezvous
from minedraft.transport.token_link import SERVICE_NAME as TOKEN_LINK_SERVICE
from minedraft.transport.token_link import TokenLinkServicer
from minedraft.transport.worker_service import VerifierServicer, add_token_link
from minedraft.types import Acceptance
from minedraft.worker.cores import parse_cores
from minedraft.worker.lifetime import load, serve_worker

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    import grpc

    from minedraft.link.local import LocalNetwork
    from minedraft.services.verifier.config import VerifierConfig

log = structlog.get_logger(__name__)


async def run(
    config: VerifierConfig,
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
        ConfigError: an address cannot be bound, a certificate or token file not be used, or a rank
            not have its cores.
    """
    credentials = Credentials(config.security, own=(Role.VERIFIER,))
    cores = rank_cores(config.cpus, config.tp_size)
    if config.cpus:
        refuse_unusable(config.cpus, cores, os.sched_getaffinity(0))
    if config.spare_cpus:
        spare = parse_cores(config.spare_cpus)
        refuse_unusable(config.spare_cpus, [spare], os.sched_getaffinity(0))
    async with (
        DeviceExecutor(cores=cores[0], num_threads=config.threads) as executor,
        Ranks(config, executor) as ranks,
    ):
        log.info("model.loading", model=config.model)
        runner = await load(ranks.load(), device=executor, stop=stop)
        if runner is None:
            return
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
            link_options=LinkOptions(
                bind_host=config.link_bind_host, device=config.device, network=network
            ),
            link_address=config.link_address,
        )
        servicer = VerifierServicer(handler)
        handler.push = servicer.sessions.push

        def add_rendezvous(server: grpc.aio.Server) -> tuple[str, ...]:
            add_token_link(TokenLinkServicer(rendezvous), server)
            return (TOKEN_LINK_SERVICE,)

        try:
            await serve_worker(
                servicer,
                *ranks.background,
                config=config,
                credentials=credentials,
                device=executor,
                facts={
                    "model": runner.info.name,
                    "dtype": runner.info.dtype,
                    "kernels": runner.info.kernels,
                },
                ready=ready,
                stop=stop,
                add_others=add_rendezvous,
            )
        finally:
            handler.close()
