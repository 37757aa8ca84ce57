"""Ends streams that their client has stopped reading, so that they hold no memory.

The engine never waits for a reader and joins what is unread, so a slow one costs only its own
stream: HTTP/2's window of sent bytes, one joined event and a task. This gives the event and the
handler's task back. The call itself ends once its client reads up to the error, or is gone: grpc
puts the end of a call behind the bytes that wait for their reader.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

import grpc
import structlog

from minedraft.errors import UnreadError
from minedraft.repeats import Repeats

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from minedraft.errors import MineDraftError

log = structlog.get_logger(__name__)

PATIENCE_S: Final = 60.0
"""Longest wait of one event for its client."""


class SlowReaderInterceptor(grpc.aio.ServerInterceptor):
    """Ends a response stream whose client takes nothing for `patience_s`.

    Args:
        abort: Ends a call with an error.
        patience_s: How long one message may wait.
    """

    def __init__(
        self,
        abort: Callable[[Any, MineDraftError], Awaitable[None]],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._abort = abort
        self._patience_s = patience_s
        self._repeats = Repeats()
        self._ending: set[asyncio.Task[None]] = set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap handlers that are async generators: those stream to clients."""
        handler = await continuation(handler_call_details)
        for kind in ("unary_stream", "stream_stream"):
            inner = None if handler is None else getattr(handler, kind)
            if inspect.isasyncgenfunction(inner):
                bound = self._bound(inner, handler_call_details.method)
                return handler._replace(**{kind: bound})
        return handler

    def _bound(self, inner: Callable[..., Any], method: str) -> Callable[..., Any]:
        async def stream(request: Any, context: Any) -> AsyncGenerator[Any, None]:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()

            def cut() -> None:
                repeated = self._repeats.facts(method)
                if repeated is not None:
                    log.warning("stream.unread", method=method, peer=context.peer(),
                                patience_s=self._patience_s, **repeated)  # fmt: skip
                ending = loop.create_task(self._end(context, task), name="stream.unread")
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

            async with aclosing(inner(request, context)) as answers:
                async for answer in answers:
                    timer = loop.call_later(self._patience_s, cut)
                    try:
                        yield answer  # resumed when grpc has sent it
                    finally:
                        timer.cancel()

        return stream

    async def _end(self, context: Any, task: asyncio.Task[Any] | None) -> None:
        """End the handler, and queue an error behind what the client has not read."""
        loop = asyncio.get_running_loop()
        if task is not None:
            loop.call_soon(task.cancel)  # cancelled first, it would take the call's end with it
        with suppress(grpc.aio.AbortError, grpc.aio.InternalError, grpc.aio.UsageError):
            await self._abort(
                context, UnreadError(f"nothing of the stream was read for {self._patience_s:g} s")
            )
