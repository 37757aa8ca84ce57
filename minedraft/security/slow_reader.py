"""Ends streams that their client has stopped reading, so that nobody's memory waits for it.

The engine never waits for a reader and joins what is unread, so a slow one costs only its own
stream: HTTP/2's window of sent bytes, one joined event and a task. This gives those back too.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import grpc
import structlog

from minedraft.repeats import Repeats

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

log = structlog.get_logger(__name__)

PATIENCE_S: Final = 60.0
"""Longest that one event may wait to be taken over the wire."""


class SlowReaderInterceptor(grpc.aio.ServerInterceptor):
    """Cancels a response stream whose client takes nothing for `patience_s`.

    Args:
        patience_s: How long one message may wait.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._repeats = Repeats()

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
                if task is not None:
                    task.cancel()

            async with aclosing(inner(request, context)) as answers:
                async for answer in answers:
                    timer = loop.call_later(self._patience_s, cut)
                    try:
                        yield answer  # resumed when grpc has sent it
                    finally:
                        timer.cancel()

        return stream
