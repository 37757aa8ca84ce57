"""What all requests of a gateway share: settings, the coordinator, and whether it still serves."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import DrainingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.services.gateway.config import GatewayConfig
    from minedraft.services.gateway.upstream import Upstream

log = structlog.get_logger(__name__)


class Site:
    """One gateway.

    Args:
        config: Settings.
        upstream: The coordinator.
    """

    def __init__(self, config: GatewayConfig, upstream: Upstream) -> None:
        self.config = config
        self.upstream = upstream
        self.cut = asyncio.Event()
        """Set when running requests may go on no longer."""
        self.num_busy = 0
        """Generation requests that run."""
        self._is_draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count a request while it runs."""
        self.num_busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.num_busy -= 1
            if not self.num_busy:
                self._idle.set()

    def check_open(self) -> None:
        """Refuse new requests once the process ends.

        Raises:
            DrainingError: it does.
        """
        if self._is_draining:
            raise DrainingError("the gateway is shutting down; try another one, or later")

    async def drain(self) -> None:
        """Refuse new requests; let running ones finish for `grace_s`, then cut them off."""
        self._is_draining = True
        try:
            async with asyncio.timeout(self.config.grace_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("drain.cut_off", num_requests=self.num_busy)
            self.cut.set()
