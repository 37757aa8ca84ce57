"""Bounds what a connection may take: uvicorn bounds neither headers nor clients that do nothing.

One look at all connections every few seconds finds those that send no whole request head, and
those that read nothing of what was written for them. Both are ended without a word.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from minedraft.services.gateway.door import CERTIFICATE, certificate_names

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_HEAD_BYTES: Final = 64 * 2**10
"""Most bytes of a request's first line and headers."""
_LOOKS: Final = 5
"""Looks per limit."""


class Connection(HttpToolsProtocol):  # type: ignore[misc]  # typed loosely where it is missing
    """One connection. The names of its methods are uvicorn's and asyncio's.

    Its class attribute `most` is set by `connection_class`.
    """

    most = 1
    """Most open connections of the server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # uvicorn's own
        super().__init__(*args, **kwargs)
        self._num_head_bytes = 0
        self._waiting_since = time.monotonic()
        self._is_in_head = True
        self._unread = 0
        self._unread_since = 0.0
        self._certificate: dict[str, list[bytes]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, if there is room for one."""
        super().connection_made(transport)
        if (tls := transport.get_extra_info("ssl_object")) is not None:
            self._certificate = certificate_names(tls.getpeercert())
        if len(self.connections) > self.most:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a head are counted."""
        if self._is_in_head:
            if not self._num_head_bytes:
                self._waiting_since = time.monotonic()
            self._num_head_bytes += min(len(data), MAX_HEAD_BYTES + 1)
            head_end = data.find(b"\r\n\r\n") if self._num_head_bytes > MAX_HEAD_BYTES else 0
            if head_end < 0:
                self.transport.abort()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Note that the head is whole, and whose certificate the connection has."""
        self._is_in_head = False
        self.scope[CERTIFICATE] = self._certificate
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the next bytes are a head again."""
        self._is_in_head = True
        self._num_head_bytes = 0
        self._waiting_since = time.monotonic()
        super().on_message_complete()

    def look(self, now: float, limit_s: float) -> None:
        """End the connection if its client has done nothing for `limit_s`."""
        size = self.transport.get_write_buffer_size()
        if size == 0 or size != self._unread:
            self._unread, self._unread_since = size, now
        is_unread = size > 0 and now - self._unread_since >= limit_s
        is_idle = self.cycle is None or self.cycle.response_complete
        is_silent = is_idle and self._is_in_head and now - self._waiting_since >= limit_s
        if is_unread or is_silent:
            self.transport.abort()


def connection_class(max_connections: int) -> type[Connection]:
    """Make the class of a server's connections."""
    return type("BoundedConnection", (Connection,), {"most": max_connections})


async def look_after(connections: Iterable[Any], limit_s: float) -> None:
    """Look at all connections now and then. Until cancelled."""
    while True:
        await asyncio.sleep(limit_s / _LOOKS)
        now = time.monotonic()
        for connection in list(connections):
            connection.look(now, limit_s)
