"""Bounds a server's connections and calls. Pure but for `raise_open_files`.

A server that is full closes what comes next, so what holds a place and does nothing has to go: a
connection without a call is closed, a call without a message too (`first_message`).
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from minedraft.transport.keepalive import Options

MAX_STREAMS: Final = 4096
"""Most calls of one connection at a time; further ones wait at the client, which is not told. So it
is more than a coordinator holds by default: a full queue then refuses by name."""
MAX_CALLS: Final = 2 * MAX_STREAMS
"""Most concurrent calls of a server; it refuses one more with RESOURCE_EXHAUSTED."""
CLIENT_IDLE_MS: Final = 30_000
"""Our own channels let go of a connection without a call before a server does: no call is sent on a
connection that is being closed."""

_MAX_CONNECTIONS: Final = 8192
_MIN_CONNECTIONS: Final = 16
_IDLE_MS: Final = 60_000
_SCARCE_IDLE_MS: Final = 5_000
_SCARCE: Final = 2048
_MAX_OPEN_FILES: Final = 65_536


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of one port, in milliseconds and counts."""

    max_connections: int
    """Most connections; the server closes further ones at once."""
    idle_ms: int
    """Longest life of a connection without a call."""
    handshake_ms: int = 10_000
    """Longest time from the connection to the end of the TLS and HTTP/2 handshakes."""
    max_streams: int = MAX_STREAMS
    """Most concurrent calls per connection."""
    max_age_ms: int = 0
    """Longest life of a connection; 0: unbounded. For ports without long streams."""

    def options(self) -> Options:
        """Return them as gRPC options."""
        age = [
            ("grpc.max_connection_age_ms", self.max_age_ms),
            ("grpc.max_connection_age_grace_ms", 1_000),
        ]
        return [
            ("grpc.max_allowed_incoming_connections", self.max_connections),
            ("grpc.max_connection_idle_ms", self.idle_ms),
            ("grpc.server_handshake_timeout_ms", self.handshake_ms),
            ("grpc.max_concurrent_streams", self.max_streams),
            *(age if self.max_age_ms else []),
        ]


HEALTH_LIMITS: Final = ServerLimits(
    max_connections=64, idle_ms=2_000, handshake_ms=2_000, max_streams=16, max_age_ms=10_000
)
"""A probe connects, asks and leaves."""


def limits_for(open_files: int) -> ServerLimits:
    """Return the limits of a service's own port.

    Some descriptors stay free for the health port, models, workers and links. Where few are left,
    idle connections go sooner.

    Args:
        open_files: This process's limit of open files.
    """
    reserve = min(512, max(open_files // 4, 128))
    room = max(_MIN_CONNECTIONS, min(_MAX_CONNECTIONS, open_files - reserve))
    return ServerLimits(
        max_connections=room, idle_ms=_IDLE_MS if room >= _SCARCE else _SCARCE_IDLE_MS
    )


def raise_open_files() -> int:
    """Raise the limit of open files as far as the system allows.

    Returns:
        The limit from now on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # a sandbox may forbid it
        return soft
    return wanted
