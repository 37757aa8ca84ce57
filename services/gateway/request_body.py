"""Reads the body of a request, with a bound on its size and on the client's silence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from minedraft.errors import InvalidRequestError, RequestAbortedError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minedraft.services.gateway.attendance import Receive


async def read_body(
    scope: Mapping[str, Any], receive: Receive, *, max_bytes: int, timeout_s: float
) -> bytes:
    """Read a JSON body whole.

    A web page of another origin may send any text without asking, but not as JSON.

    Args:
        scope: Of the request.
        receive: Of the server.
        max_bytes: Largest body.
        timeout_s: Longest wait for the next part.

    Raises:
        InvalidRequestError: it does not call itself JSON, or no more of it came in time.
        TooLargeError: more than `max_bytes`, or says that it will be.
        RequestAbortedError: the client left.
    """
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json" and not kind.endswith(b"+json"):
        raise InvalidRequestError(
            "the body's content-type is not application/json", field="content-type"
        )
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length[:20]) > max_bytes:
        raise _too_large(max_bytes)
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(timeout_s):
                message = await receive()
        except TimeoutError:
            raise InvalidRequestError(
                f"no more of the body came for {timeout_s:g} s, after {size} bytes"
            ) from None
        if message["type"] == "http.disconnect":
            raise RequestAbortedError("the client left")
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(max_bytes: int) -> TooLargeError:
    return TooLargeError(f"the body has more than {max_bytes} bytes, the most that is read")
