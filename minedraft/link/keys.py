"""The rendezvous of a link, for either end: keys by name, with bounded waits. No torch.

The verifier holds the board in its own memory, the drafter reaches it over the control plane.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from minedraft.transport.rendezvous import LinkSite
    from minedraft.transport.token_link import TokenLinkClient


class Keys(Protocol):
    """The operations of either end; both raise MineDraftError."""

    def put(self, key: str, value: bytes, timeout_s: float) -> None:
        """Write a key, once."""

    def get(self, key: str, timeout_s: float) -> bytes:
        """Wait for a key."""


class LocalKeys:
    """The verifier's keys, in its own memory."""

    def __init__(self, site: LinkSite) -> None:
        self._site = site

    def put(self, key: str, value: bytes, timeout_s: float) -> None:  # noqa: ARG002 never waits
        """See `Keys`."""
        self._site.keys.put(key, value)

    def get(self, key: str, timeout_s: float) -> bytes:
        """See `Keys`."""
        return self._site.keys.get(key, timeout_s)


class RemoteKeys:
    """The drafter's keys, over the control plane."""

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
    """Return the seconds until a deadline; never 0, which torch takes for no deadline."""
    return max(0.01, until - time.monotonic())
