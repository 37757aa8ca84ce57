"""Composition root of the coordinator: config -> objects -> serve."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import structlog

from minedraft.identity import draw_identity
from minedraft.kept_forms import KeptForms
from minedraft.model_files.sampling_defaults import read_sampling_defaults
from minedraft.security.credentials import Credentials
from minedraft.security.roles import Role
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.engine import Engine
from minedraft.services.coordinator.handler import Handler
from minedraft.services.coordinator.telemetry.exposition import Exposition
from minedraft.services.coordinator.telemetry.listener import MetricsListener
from minedraft.services.coordinator.telemetry.loop_lag import measure
from minedraft.services.coordinator.telemetry.observed import Observed
from minedraft.services.coordinator.telemetry.timeline import Timeline
from minedraft.services.coordinator.text.pool import TextPool
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from minedraft.services.coordinator.workers.membership import Membership
from minedraft.transport.channel import MAX_CLIENT_MESSAGE_BYTES
from minedraft.transport.fence import Coordinator
from minedraft.transport.public_service import AdminServicer, GenerationServicer
from minedraft.transport.server import serve
from minedraft.types import NO_DEFAULTS, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    import grpc

    from minedraft.services.coordinator.config import CoordinatorConfig
    from minedraft.services.coordinator.handler import Render
    from minedraft.transport.health import HealthServer
    from minedraft.types import SamplingDefaults

log = structlog.get_logger(__name__)

_READINESS_PERIOD_S = 0.5
_LAST_EVENTS_S = 1.0
"""Time after the drain for the last events to reach their clients."""


async def run(
    config: CoordinatorConfig,
    *,
    ready: Callable[[str], None] = lambda _address: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until stopped.

    Args:
        config: Settings.
        ready: Called with the bound `host:port` once the port is open; workers may join later.
        stop: Ends it, for tests; otherwise signals do.

    Raises:
        ModelError: the tokenizer cannot be loaded.
        ConfigError: an address cannot be bound, or a certificate or token file not be used.
    """
    credentials = Credentials(config.security, own=(Role.COORDINATOR,))
    tokenizer = Tokenizer.from_directory(config.tokenizer) if config.tokenizer else None
    if tokenizer is None:
        log.warning("tokenizer.missing", effect="text prompts and chats are refused",
                    remedy="restart with --tokenizer DIR")  # fmt: skip
    if config.debug_requests:
        log.warning("debug.enabled", effect="requests may tell test drafters what to propose")
    mode = Mode(
        config.num_batches,
        config.max_batch_size,
        config.num_draft_tokens,
        config.shape,
        config.policy,
    )
    core = Core(
        mode,
        prefill_budget_tokens=config.prefill_budget_tokens,
        prefill_stall=config.prefill_stall,
        max_waiting=config.max_waiting_requests,
        step_timeout_s=config.step_timeout_s,
        prefix_cache=config.prefix_cache,
        trial_s=config.trial_s,
        max_rows=config.max_rows,
        assignment=config.assignment,
        policy_options=config.policies,
        has_ngrams=config.fallback == "ngram",
    )
    observed = None if config.metrics == "none" else Observed()
    timeline = Timeline()
    engine = Engine(core, timeline, observed=observed)
    identity = draw_identity()
    membership = Membership(
        config,
        engine,
        tokenizer.fingerprint if tokenizer else "",
        credentials,
        num_token_ids=tokenizer.vocab_size if tokenizer else 0,
        coordinator=Coordinator(identity.instance_id, _name(config.listen, identity.pid)),
    )
    texts = TextPool(config.tokenizer, tokenizer.fingerprint) if tokenizer else None
    handler = Handler(
        config=config,
        engine=engine,
        membership=membership,
        identity=identity,
        tokenizer=tokenizer,
        texts=texts,
        sampling_defaults=_defaults(config),
        render=_exposition(config, observed, timeline),
    )
    health: HealthServer | None = None

    def register(server: grpc.aio.Server) -> tuple[str, ...]:
        return (
            GenerationServicer(handler).register(server),
            AdminServicer(handler).register(server),
        )

    def on_bound(port: int, bound_health: HealthServer | None) -> None:
        nonlocal health
        health = bound_health
        address = f"{config.listen.rpartition(':')[0]}:{port}"
        log.info("server.ready", address=address)
        ready(address)

    async def follow_readiness() -> None:
        """Ready means routable: there is a verifier. Without a drafter it serves with k = 0."""
        while True:
            if health is not None:
                health.set_ready(ready=core.verifier_info is not None and not handler.is_draining)
            await asyncio.sleep(_READINESS_PERIOD_S)

    async def watch_engine() -> None:
        await engine.failure

    async with KeptForms(config.cost_cache, core.seed, core.forms) as kept:
        await serve(
            config.listen,
            register,
            membership.run,
            follow_readiness,
            watch_engine,
            *((texts.run,) if texts else ()),
            kept.run,
            *_watchers(config, observed, handler),
            max_message_bytes=MAX_CLIENT_MESSAGE_BYTES,
            credentials=credentials,
            health_address=config.health_listen,
            drain=handler.drain,
            grace_s=_LAST_EVENTS_S,
            stop=stop,
            on_bound=on_bound,
        )


def _name(listen: str, pid: int) -> str:
    """Describe where this coordinator runs, for the errors of another coordinator."""
    host = socket.gethostname().encode("ascii", "replace").decode()[:64]
    return f"{listen} on {host}, pid {pid}"


def _defaults(config: CoordinatorConfig) -> SamplingDefaults:
    """Read what the target's makers recommend, where the target's directory is known."""
    return read_sampling_defaults(config.tokenizer) if config.tokenizer else NO_DEFAULTS


def _exposition(
    config: CoordinatorConfig, observed: Observed | None, timeline: Timeline
) -> Render | None:
    """Build what renders the metrics, if they are kept."""
    if observed is None:
        return None
    return Exposition(observed, timeline, with_vllm=config.metrics == "all").text


def _watchers(
    config: CoordinatorConfig, observed: Observed | None, handler: Handler
) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
    """Build the loops of the metrics; an address is bound now, so that a bad one is refused."""
    if observed is not None:

        async def measure_loop() -> None:
            await measure(observed.loop_lag_s.observe)

        yield measure_loop
    if config.metrics_listen:
        yield MetricsListener(config.metrics_listen, handler.metrics).run
