"""Sends one answer through the server's own `send`, without a layer between."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from minedraft.services.gateway.chunks import COMMENT, failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from minedraft.services.gateway.refusal import Refusal

    Send = Callable[[dict[str, Any]], Awaitable[None]]

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Outlet:
    """The way to one client.

    Args:
        send: Of the server.
        headers: Of every answer.
    """

    __slots__ = ("_headers", "_last", "_send", "is_ended", "is_stream", "status")

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self._last = time.monotonic()
        self.status = 0
        """Sent; 0: not yet."""
        self.is_stream = False
        self.is_ended = False

    def silence_left_s(self, most_s: float) -> float:
        """Return the seconds until the answer has been silent for `most_s`."""
        return self._last + most_s - time.monotonic()

    async def begin_stream(self) -> None:
        """Send the status line of a stream of events."""
        self.is_stream = True
        await self._start(200, _STREAM_HEADERS)

    async def write(self, data: bytes) -> None:
        """Send a part of a stream; waits while the client is behind."""
        self._last = time.monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def comment(self) -> None:
        """Send a line that says nothing, if a stream goes on."""
        self._last = time.monotonic()
        if self.is_stream and not self.is_ended:
            await self.write(COMMENT)

    async def end(self, data: bytes = b"") -> None:
        """Send the end of the body."""
        self.is_ended = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def whole(
        self, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        """Send an answer of one JSON body."""
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        fields += [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await self._start(status, fields)
        await self.end(body)

    async def fail(self, refusal: Refusal) -> None:
        """Say that there is no answer: by the status, or in a stream by its last event.

        Such a stream has no end: the server closes the connection, and a client that does not know
        errors in streams sees that it broke.
        """
        if self.is_ended:
            return
        if not self.status:
            await self.whole(refusal.status, refusal.encoded, refusal.headers)
        elif self.is_stream:
            await self.write(failure(refusal))
            self.is_ended = True

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self._last = time.monotonic()
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, *self._headers],
            }
        )
