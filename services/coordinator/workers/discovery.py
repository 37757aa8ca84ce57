"""Resolves a DNS name to drafters, one per address. Dials none of them.

`dns:host:port` names all the pods behind a headless service, today's and tomorrow's. Without the
prefix an address is one drafter, even if its name has several addresses.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

from minedraft.services.coordinator.config import dns_place


@dataclass(frozen=True, slots=True)
class DrafterName:
    """A name with a port, each of whose addresses is a drafter."""

    host: str
    port: int

    @classmethod
    def parse(cls, address: str) -> DrafterName | None:
        """Parse `dns:host:port`; None for an address of another form.

        Raises:
            ConfigError: the prefix without host and port.
        """
        place = dns_place(address)
        if place is None:
            return None
        host, _, port = place.rpartition(":")
        return cls(host.strip("[]"), int(port))

    async def resolve(self) -> frozenset[str] | None:
        """Find the addresses, `host:port` each.

        Returns:
            None if the resolver failed to answer, which says nothing; empty if the name has no
            address now, as with a service that was scaled to zero.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except socket.gaierror as err:
            is_gone = err.errno in {socket.EAI_NONAME, socket.EAI_NODATA}
            return frozenset() if is_gone else None
        except (OSError, UnicodeError):
            return None
        hosts = {str(info[4][0]) for info in found}
        return frozenset(
            f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}" for host in hosts
        )
