"""Settings of one end of every token link. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from minedraft.link.local import LocalNetwork
    from minedraft.security.credentials import Credentials


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Settings of one end of every link, from its service's configuration.

    Raises:
        ConfigError: a setting is out of range.
    """

    bind_host: str = "127.0.0.1"
    """Address gloo listens on and tells the peer; one address, never all of them."""
    device: str = "cpu"
    """The torch device of the worker's model; an nccl link runs between two CUDA devices."""
    op_timeout_s: float = 10.0
    """Longest silence of the peer, or wait of a packet; after that the peer counts as hanging."""
    heartbeat_s: float = 0.5
    """Pause between heartbeats of an idle sender; at most half of `op_timeout_s`. On gloo it is
    also how soon either end notices that the other one has closed."""
    credentials: Credentials | None = None
    """Credentials of a drafter for the verifier's control plane."""
    network: LocalNetwork | None = None
    """Tests: where the ends of `local` links meet. None: this worker has no such links."""

    def __post_init__(self) -> None:
        if self.bind_host in {"", "0.0.0.0", "::"}:  # noqa: S104 refused, not used
            raise ConfigError(f"bind_host={self.bind_host!r}: name one address, not all of them")
        if not 0 < self.heartbeat_s <= self.op_timeout_s / 2:
            raise ConfigError(
                f"heartbeat_s={self.heartbeat_s}: want (0, op_timeout_s / 2 = "
                f"{self.op_timeout_s / 2:g}], or a healthy idle link looks dead"
            )
