"""Channels that prove this process's identity. Each call uses the current certificate and token.

gRPC's channel credentials do not reload. So a call made after a rotation dials anew, and calls that
run keep the connection they have. A token is put into each call's metadata here and nowhere else.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import grpc

from minedraft.security.tokens import authorization_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from minedraft.security.credentials import Credentials

_MAX_RETIRED: Final = 2
"""Most outdated connections that stay open for the calls that still run on them."""


def open_aio_channel(
    address: str, options: Sequence[tuple[str, Any]], credentials: Credentials | None
) -> grpc.aio.Channel:
    """Open a channel to `host:port`; connects lazily.

    Raises:
        ConfigError: a token would travel in the clear.
    """
    if credentials is None or not credentials.config.has_files:
        return grpc.aio.insecure_channel(address, options=list(options))
    return cast(
        "grpc.aio.Channel",
        _AioChannel(
            address, options, credentials, grpc.aio.secure_channel, grpc.aio.insecure_channel
        ),
    )


def open_sync_channel(
    address: str, options: Sequence[tuple[str, Any]], credentials: Credentials | None
) -> grpc.Channel:
    """Open a channel for threads; as `open_aio_channel`."""
    if credentials is None or not credentials.config.has_files:
        return grpc.insecure_channel(address, options=list(options))
    return cast(
        "grpc.Channel",
        _SyncChannel(address, options, credentials, grpc.secure_channel, grpc.insecure_channel),
    )


class _Channel:
    """Implements what generated stubs use of a channel, over the newest of several."""

    def __init__(
        self,
        address: str,
        options: Sequence[tuple[str, Any]],
        credentials: Credentials,
        secure: Callable[..., Any],
        insecure: Callable[..., Any],
    ) -> None:
        credentials.config.check_client(address)
        self._address = address
        self._options = list(options)
        self._credentials = credentials
        self._secure, self._insecure = secure, insecure
        self._lock = threading.Lock()
        self._retired: deque[Any] = deque()
        self.generation = credentials.generation
        self._channel = self._dial()

    def current(self) -> tuple[int, Any]:
        """Return the channel for a new call, with its number."""
        with self._lock:
            if self.generation != self._credentials.generation:
                self.generation = self._credentials.generation
                self._retired.append(self._channel)
                self._channel = self._dial()
                if len(self._retired) > _MAX_RETIRED:
                    self._retired.popleft()  # grpc closes a channel without references
            return self.generation, self._channel

    def with_token(self, metadata: Sequence[tuple[str, Any]] | None) -> Sequence[tuple[str, Any]]:
        """Return the metadata of a call, with the token added."""
        token = self._credentials.own_token
        return (*(metadata or ()), *((authorization_of(token),) if token else ()))

    def unary_unary(self, *args: Any, **kwargs: Any) -> _Call:
        """One request, one response."""
        return _Call(self, "unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> _Call:
        """One request, many responses."""
        return _Call(self, "unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> _Call:
        """Many requests, one response."""
        return _Call(self, "stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> _Call:
        """Many requests, many responses."""
        return _Call(self, "stream_stream", args, kwargs)

    def _all(self) -> list[Any]:
        with self._lock:
            return [*self._retired, self._channel]

    def _dial(self) -> Any:
        if self._credentials.config.is_tls:
            channel_credentials = self._credentials.channel_credentials()
            return self._secure(self._address, channel_credentials, options=self._options)
        return self._insecure(self._address, options=self._options)


class _AioChannel(_Channel):
    async def close(self, grace: float | None = None) -> None:
        for channel in self._all():
            await channel.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class _SyncChannel(_Channel):
    def close(self) -> None:
        for channel in self._all():
            channel.close()


class _Call:
    """One RPC of a stub; each call goes to the channel that is current by then."""

    def __init__(
        self, owner: _Channel, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._owner = owner
        self._kind, self._args, self._kwargs = kind, args, kwargs
        self._made: tuple[int, Any] = (-1, None)

    def __call__(
        self, *args: Any, metadata: Sequence[tuple[str, Any]] | None = None, **kwargs: Any
    ) -> Any:
        return self._callable()(*args, metadata=self._owner.with_token(metadata), **kwargs)

    def future(
        self, *args: Any, metadata: Sequence[tuple[str, Any]] | None = None, **kwargs: Any
    ) -> Any:
        """Start a call on a synchronous channel without waiting for its result."""
        return self._callable().future(*args, metadata=self._owner.with_token(metadata), **kwargs)

    def _callable(self) -> Any:
        generation, channel = self._owner.current()
        if self._made[0] != generation:
            self._made = (generation, getattr(channel, self._kind)(*self._args, **self._kwargs))
        return self._made[1]
