"""Reads the streams of several prompts at once. Each is read no faster than its answer is taken."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

from minedraft.api import Event
from minedraft.errors import MineDraftError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from minedraft.client import GenerationStream

_MAX_WAITING: Final = 64
"""Most events that wait for the reader, of all prompts together."""

Told = Event | MineDraftError
"""An event, or why there will be no more."""


@asynccontextmanager
async def merged(
    streams: Sequence[GenerationStream],
) -> AsyncIterator[AsyncGenerator[tuple[int, Told], None]]:
    """Read streams; leaving the context aborts those that are live.

    Yields:
        An iterator over (prompt, event) in the order of arrival. It ends with the first error.
    """
    if len(streams) == 1:
        async with aclosing(_only(streams[0])) as events:
            yield events
        return
    queue: asyncio.Queue[tuple[int, Told | None]] = asyncio.Queue(_MAX_WAITING)

    async def read(prompt: int, stream: GenerationStream) -> None:
        last: MineDraftError | None = None
        try:
            async with aclosing(stream.events()) as events:
                async for event in events:
                    await queue.put((prompt, event))
        except MineDraftError as err:
            last = err
        await queue.put((prompt, last))

    async def take() -> AsyncGenerator[tuple[int, Told], None]:
        num_open = len(streams)
        while num_open:
            prompt, event = await queue.get()
            if event is None:
                num_open -= 1
                continue
            yield prompt, event
            if isinstance(event, MineDraftError):
                return

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(read(*each)) for each in enumerate(streams)]
        try:
            async with aclosing(take()) as events:
                yield events
        finally:
            for task in tasks:
                task.cancel()


async def _only(stream: GenerationStream) -> AsyncGenerator[tuple[int, Told], None]:
    try:
        async with aclosing(stream.events()) as events:
            async for event in events:
                yield 0, event
    except MineDraftError as err:
        yield 0, err
