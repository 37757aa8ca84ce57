"""The gateway's connection to the coordinator, and what is known of its model.

A gateway serves without one: it says 503, and connects as soon as there is one.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from minedraft.client import Client, RetryPolicy
from minedraft.errors import (
    ConfigError,
    MineDraftError,
    ModelNotFoundError,
    PermissionDeniedError,
    WorkerUnavailableError,
)
from minedraft.repeats import Repeats

if TYPE_CHECKING:
    from minedraft.admin import ServerInfo, TargetInfo
    from minedraft.services.gateway.config import GatewayConfig
    from minedraft.types import ModelInfo

log = structlog.get_logger(__name__)

_CONNECT_S: Final = 5.0
_PAUSE_S: Final = 0.2
_REFRESH_S: Final = 5.0
"""Seconds between two looks at which model is served."""
RETRY: Final = RetryPolicy(only_after_start=True)
"""Before an answer has begun its client is told at once; it has its own way to wait."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is served."""

    target: TargetInfo
    server: ServerInfo
    drafters: tuple[ModelInfo, ...]
    names: tuple[str, ...]
    """Names that clients may ask for, the shown one first."""
    created: int
    """Unix seconds at which this gateway first saw this model."""

    @property
    def fingerprint(self) -> str:
        """Of everything beside the request that an output depends on."""
        model = self.target.model
        told = (
            model.weights_fingerprint,
            model.tokenizer_fingerprint,
            model.dtype,
            model.quantisation,
            model.kernels,
            model.device,
            self.server.acceptance,
        )
        return f"fp_{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"

    def check_name(self, name: str | None) -> str:
        """Return the name to show for a name that was asked for.

        Raises:
            ModelNotFoundError: it is not served.
        """
        if not name or name in self.names:
            return name or self.names[0]
        raise ModelNotFoundError(f"model {name[:64]!r} is not served; {self.names[0]!r} is")


class Upstream:
    """The coordinator.

    Args:
        config: Settings of the gateway.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._client: Client | None = None
        self._facts: Facts | None = None
        self._repeats = Repeats()
        self.connected = asyncio.Event()
        """Set once there are facts."""

    @property
    def client(self) -> Client:
        """The client.

        Raises:
            WorkerUnavailableError: no coordinator has answered yet.
        """
        if self._client is None:
            raise WorkerUnavailableError(f"no coordinator at {self._config.coordinator}")
        return self._client

    @property
    def facts(self) -> Facts:
        """What is served, as of a few seconds ago.

        Raises:
            WorkerUnavailableError: it is not known yet.
        """
        if self._facts is None:
            raise WorkerUnavailableError(
                f"no model yet: the coordinator at {self._config.coordinator} has not said which"
            )
        return self._facts

    async def check(self) -> None:
        """Check that a request could be served now.

        Raises:
            MineDraftError: there is no coordinator, it has no verifier, or the model is not known.
        """
        _ = self.facts
        await self.client.model_info()

    async def run(self) -> None:
        """Connect, and look now and then which model is served. Until cancelled."""
        try:
            while True:
                try:
                    await self._refresh()
                except (MineDraftError, ConfigError) as err:
                    self._complain(err)
                    pause_s = _PAUSE_S if self._facts is None else _REFRESH_S
                else:
                    pause_s = _REFRESH_S
                await asyncio.sleep(pause_s)
        finally:
            if self._client is not None:
                await self._client.close()

    async def _refresh(self) -> None:
        if self._client is None:
            self._client = await Client.connect(
                self._config.coordinator,
                timeout_s=_CONNECT_S,
                request_timeout_s=self._config.request_timeout_s,
                retry=RETRY,
                security=self._config.security if self._config.security.has_files else None,
            )
            log.info("coordinator.connected", address=self._config.coordinator)
        target = await self._client.model_info()
        server = await self._client.server_info()
        drafters: tuple[ModelInfo, ...] = ()
        with suppress(PermissionDeniedError):  # a gateway needs no more than a client's role
            workers = (await self._client.status()).workers
            drafters = tuple(
                each.model for each in workers if each.role == "drafter" and each.connected
            )
        names = self._config.served_model_name or (target.model.name,)
        seen = self._facts
        is_same = seen is not None and seen.target.model == target.model
        created = seen.created if seen is not None and is_same else int(time.time())
        self._facts = Facts(target, server, drafters, names, created)
        self.connected.set()

    def _complain(self, err: Exception) -> None:
        repeated = self._repeats.facts(str(err))
        if repeated is not None:
            log.warning("coordinator.unavailable", why=str(err), **repeated)
