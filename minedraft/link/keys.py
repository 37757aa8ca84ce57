"""The rendezvous of a link as each of its two ends sees it: keys by name, waits bounded. No torch.

The verifier holds the board in its own memory, the drafter reaches it over the control plane.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from minedraft.transport.rendezvous import LinkSite
    from minedraft.transport.token_link import TokenLinkClient


class Keys(Protocol):
    """What either end does with keys; both raise MineDraftError."""

    def put(self, key: str, value: bytes, timeout_s: float) -> None:
        """Write a key, once."""

    def get(self, key: str, timeout_s: float) -> bytes:
        """Wait for a key."""


class LocalKeys:
    """The verifier's: in its own memory."""

    def __init__(self, site: LinkSite) -> None:
        self._site = site

    def put(self, key: str, value: bytes, timeout_s: float) -> None:  # noqa: ARG002 never waits
        """See `Keys`."""
        self._site.keys.put(key, value)

    def get(self, key: str, timeout_s: float) -> bytes:
        """See `Keys`."""
        return self._site.keys.get(key, timeout_s)


class RemoteKeys:
    """The drafter's: over the control plane."""

    def __init__(self, client: TokenLinkClient, link_name: str) -> None:
        self._client = client
        self._link_name = link_name

    def put(self, key: str, value: bytes, timeout_s: float) -> None:
        """See `Keys`."""
        self._client.set_key(self._link_name, key, value, timeout_s)

    def get(self, key: str, timeout_s: float) -> bytes:
        """See `Keys`."""
        return self._client.get_key(self._link_name, key, timeout_s)


def left_s(until: float) -> float:
    """Seconds until a moment of the monotonic clock; never 0, which is "for ever" to torch."""
    return max(0.01, until - time.monotonic())
