"""Watches the client of one request while its answer is made: the one place that does.

It sees a client that leaves, in the queue too, streamed or not; a stream that is silent; and the
end of the process's grace. Nothing else calls `receive` after the body. A client that reads
nothing loses its connection (`connections`), which is seen here as one that leaves.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from minedraft.errors import DrainingError, RequestAbortedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from minedraft.services.gateway.outlet import Outlet

    Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class Attendance:
    """The watch over one client.

    Args:
        receive: Of the server; the body has been read.
        outlet: Where the answer goes.
        comment_s: A stream that is silent for so long gets a comment.
        cut: Set when the process may wait no longer for its requests.
    """

    def __init__(
        self, receive: Receive, outlet: Outlet, *, comment_s: float, cut: asyncio.Event
    ) -> None:
        self._receive = receive
        self._outlet = outlet
        self._comment_s = comment_s
        self._cut = cut

    async def during(self, work: Callable[[], Awaitable[None]]) -> Exception | None:
        """Do the work while the client is there.

        Returns:
            What ended it early: `RequestAbortedError`, the client left; `DrainingError`, the
            process ends. None: the work is done.
        """
        ended: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._watch(), name="client"),
                    group.create_task(self._end_of_grace(), name="grace"),
                ]
                await work()
                for task in tasks:
                    task.cancel()
        except* (RequestAbortedError, DrainingError) as found:
            (ended, *_) = found.exceptions
        return ended

    async def _watch(self) -> None:
        """Wait for the client to leave.

        Raises:
            RequestAbortedError: it has left.
        """
        while True:
            try:
                async with asyncio.timeout(self._outlet.silence_left_s(self._comment_s)):
                    message = await self._receive()
            except TimeoutError:
                if self._outlet.silence_left_s(self._comment_s) <= 0:
                    await self._outlet.comment()
                continue
            if message["type"] == "http.disconnect":
                raise RequestAbortedError("the client left")

    async def _end_of_grace(self) -> None:
        await self._cut.wait()
        raise DrainingError("the gateway shut down before this answer was complete")
