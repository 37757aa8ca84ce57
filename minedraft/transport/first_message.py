"""Waits for a call's first message, in bounded time, after the check of the caller.

gRPC's own handlers of one request take the message in before any of our code runs. Here such a
handler becomes one of a stream of requests, which is the same on the wire: so interceptors outside
of this one refuse a stranger before a byte of the message is asked for, a call whose message never
comes ends, and bytes that are no message are refused by name.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from minedraft.errors import DeadlineError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

PATIENCE_S: Final = 20.0
"""Longest wait for the first message: the largest one at 2 Mbit/s."""
_LASTING: Final = ("/Session",)
"""Request streams that may begin with silence: a coordinator without callers."""


class FirstMessageInterceptor(grpc.aio.ServerInterceptor):
    """Stands inside every other interceptor.

    Args:
        patience_s: Longest wait for the first message of a call.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # grpc's handler type has four optional callables; nothing narrower fits
        """Replace handlers of one request; bound the first message of the others."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.endswith(_LASTING):
            return handler
        encode, decode = handler.response_serializer, handler.request_deserializer
        if handler.unary_unary is not None:
            read = self._reader(method, decode)
            call = _one_to_one(handler.unary_unary, read)
            return grpc.stream_unary_rpc_method_handler(call, None, encode)
        if handler.unary_stream is not None:
            read = self._reader(method, decode)
            stream = _one_to_many(handler.unary_stream, read)
            return grpc.stream_stream_rpc_method_handler(stream, None, encode)
        kind = "stream_unary" if handler.stream_unary is not None else "stream_stream"
        inner = getattr(handler, kind)
        if not inspect.isasyncgenfunction(inner):
            return handler  # SendPackets: it bounds its own first message
        return handler._replace(**{kind: self._bound(inner, method)})

    def _reader(
        self, method: str, decode: Callable[[bytes], Any] | None
    ) -> Callable[[Any], Awaitable[Any]]:
        async def read(context: Any) -> Any:
            try:
                async with asyncio.timeout(self._patience_s):
                    raw = await context.read()
            except TimeoutError:
                raise self._too_late(method) from None
            if raw is grpc.aio.EOF:
                raise InvalidRequestError(f"{method}: the call ended without a message")
            try:
                return raw if decode is None else decode(raw)
            except DecodeError:
                raise InvalidRequestError(
                    f"{method}: {len(raw)} bytes that are no message of this method"
                ) from None

        return read

    def _bound(self, inner: Callable[..., Any], method: str) -> Callable[..., Any]:
        async def stream(requests: AsyncIterator[Any], context: Any) -> AsyncGenerator[Any, None]:
            async with aclosing(inner(self._begun(requests, method), context)) as answers:
                async for answer in answers:
                    yield answer

        return stream

    async def _begun(self, requests: AsyncIterator[Any], method: str) -> AsyncGenerator[Any, None]:
        messages = aiter(requests)
        try:
            async with asyncio.timeout(self._patience_s):
                first = await anext(messages)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise self._too_late(method) from None
        yield first
        async for message in messages:
            yield message

    def _too_late(self, method: str) -> DeadlineError:
        return DeadlineError(f"{method}: no message within {self._patience_s:g} s")


def _one_to_one(
    inner: Callable[..., Awaitable[Any]], read: Callable[[Any], Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    async def call(_requests: Any, context: Any) -> Any:
        return await inner(await read(context), context)

    return call


def _one_to_many(
    inner: Callable[..., AsyncGenerator[Any, None]], read: Callable[[Any], Awaitable[Any]]
) -> Callable[..., AsyncGenerator[Any, None]]:
    async def stream(_requests: Any, context: Any) -> AsyncGenerator[Any, None]:
        async with aclosing(inner(await read(context), context)) as answers:
            async for answer in answers:
                yield answer

    return stream
