"""TLS of the HTTP port: every handshake uses the files' current content."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from minedraft.security.config import SecurityConfig
    from minedraft.security.credentials import Credentials

log = structlog.get_logger(__name__)
_POLL_S = 0.5


def _context(config: SecurityConfig) -> ssl.SSLContext:
    """Read the files. Blocks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(config.tls_cert, config.tls_key)
    if config.is_mtls:
        context.load_verify_locations(config.tls_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class RotatingContext(ssl.SSLContext):
    """Hands every new connection to the newest context; servers demand a real one.

    Args:
        config: Where the files are.
    """

    config: SecurityConfig
    newest: ssl.SSLContext

    @classmethod
    def of(cls, config: SecurityConfig) -> RotatingContext:
        """Read the files."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context.config = config
        context.newest = _context(config)
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:  # noqa: ANN401  # ssl's own
        """Begin a connection."""
        return self.newest.wrap_bio(*args, **kwargs)

    async def follow(self, credentials: Credentials) -> None:
        """Read the files again whenever the credentials have. Until cancelled."""
        used = credentials.generation
        while True:
            await asyncio.sleep(_POLL_S)
            if credentials.generation == used:
                continue
            used = credentials.generation
            try:
                self.newest = await asyncio.to_thread(_context, self.config)
            except (OSError, ValueError) as err:  # SSLError is an OSError
                log.warning("tls.kept", why=type(err).__name__)
