"""Settings of a gateway process: frozen, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from minedraft.errors import ConfigError
from minedraft.security.address import check_dial, check_listen
from minedraft.security.config import SecurityConfig

_DAY_S: Final = 86400.0
_COORDINATOR_SLOW_READER_S: Final = 60.0
"""The coordinator ends a stream that is unread for so long, and the client would resume it."""
_MIN_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """What a gateway needs."""

    listen: str = "127.0.0.1:8000"
    """Where HTTP clients connect. Port 0: a free one."""
    coordinator: str = "127.0.0.1:50050"
    """Address of the coordinator."""
    served_model_name: tuple[str, ...] = ()
    """Names that clients may ask for, with commas; the first one is shown. Empty: the target's."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may call, with commas; `*`: all. Empty: none."""
    max_body_bytes: int = 12 * 2**20
    """Largest body of a request."""
    max_connections: int = 4096
    """Most open connections; further ones are closed at once."""
    request_timeout_s: float = 600.0
    """Longest time of a request, in the queue and running."""
    comment_s: float = 15.0
    """A stream that is silent for so long carries a comment, for proxies."""
    slow_reader_s: float = 30.0
    """Longest time that a client may read nothing of its answer, and send nothing of its request;
    under 60 s, the coordinator's."""
    grace_s: float = 10.0
    """Time for running requests to finish after SIGTERM."""
    security: SecurityConfig = field(default_factory=SecurityConfig)

    def __post_init__(self) -> None:
        check_listen("listen", self.listen)
        if self.listen.startswith("unix:"):
            raise ConfigError(f"listen={self.listen!r}: want host:port")
        check_dial("coordinator", self.coordinator)
        self.security.check_server("listen", self.listen)
        _range("max_body_bytes", self.max_body_bytes, 1024, 2**30)
        _range("max_connections", self.max_connections, 1, 65_536)
        _range("request_timeout_s", self.request_timeout_s, _MIN_S, _DAY_S)
        _range("comment_s", self.comment_s, _MIN_S, _DAY_S)
        _range("slow_reader_s", self.slow_reader_s, _MIN_S, _COORDINATOR_SLOW_READER_S - 1)
        _range("grace_s", self.grace_s, 0.0, _DAY_S)


def _range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # a NaN is in no range
        raise ConfigError(f"{name}={value}, want {low:g}..{high:g}")
