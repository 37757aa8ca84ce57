"""Keeps one secret per request that a client reads; the secret proves that it may abort it."""

from __future__ import annotations

import secrets
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from minedraft.api import Started

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from minedraft.api import Event, GenerationRequest

_NUM_TOKEN_BYTES: Final = 16


def draw_token() -> bytes:
    """Draw a secret for one request."""
    return secrets.token_bytes(_NUM_TOKEN_BYTES)


class LiveTokens:
    """Secrets by request id, while the client reads the requests' events."""

    def __init__(self) -> None:
        self._tokens: dict[str, list[bytes]] = {}

    def proofs(self, request_ids: Iterable[str]) -> tuple[list[str], list[bytes]]:
        """Return ids with one secret each. An id that several requests share appears several times.

        A secret that is not known here is empty.
        """
        pairs = [(each, token) for each in request_ids for token in self._of(each)]
        return [each for each, _ in pairs], [token for _, token in pairs]

    async def keep(
        self, request: GenerationRequest, events: AsyncGenerator[Event, None]
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a request and keep its secret until they end."""
        request_id = request.request_id
        self._add(request_id, request.resume_token)
        try:
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, Started) and event.request_id != request_id:
                        self._drop(request_id, request.resume_token)
                        request_id = event.request_id
                        self._add(request_id, request.resume_token)
                    yield event
        finally:
            self._drop(request_id, request.resume_token)

    def _of(self, request_id: object) -> list[bytes]:
        known = self._tokens.get(request_id) if isinstance(request_id, str) else None
        return known or [b""]  # what is no text is for the codec to refuse

    def _add(self, request_id: str, token: bytes) -> None:
        self._tokens.setdefault(request_id, []).append(token)

    def _drop(self, request_id: str, token: bytes) -> None:
        tokens = self._tokens[request_id]
        tokens.remove(token)
        if not tokens:
            del self._tokens[request_id]
