"""From the engine to one RPC: events of a request, ended once, with bounded memory.

Never blocks the engine. A reader that lags gets its deltas joined: at most one unread delta and
one end a sample are kept, and their tokens are bounded by the request's max_tokens.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minedraft.api import Delta, Finished
    from minedraft.errors import MineDraftError


class EventStream:
    """Written by the engine, read by one RPC.

    Args:
        num_samples: Samples that will each end once.
    """

    def __init__(self, num_samples: int) -> None:
        self._deltas: dict[int, Delta] = {}
        self._finished: dict[int, Finished] = {}
        self._num_open = num_samples
        self._error: MineDraftError | None = None
        self._wake = asyncio.Event()

    @property
    def num_open(self) -> int:
        """Samples that have not ended."""
        return self._num_open

    def push(self, delta: Delta) -> None:
        """Hand over new output."""
        unread = self._deltas.get(delta.index)
        if unread is not None:
            delta = replace(
                unread,
                token_ids=unread.token_ids + delta.token_ids,
                text=unread.text + delta.text,
                logprobs=unread.logprobs + delta.logprobs,
            )
        self._deltas[delta.index] = delta
        self._wake.set()

    def finish(self, finished: Finished) -> None:
        """End a sample."""
        self._finished[finished.index] = finished
        self._num_open -= 1
        self._wake.set()

    def fail(self, err: MineDraftError) -> None:
        """End the stream with an error; what is unread is lost."""
        if self._error is None:
            self._error = err
            self._wake.set()

    def __aiter__(self) -> EventStream:
        """Iterate over events: deltas, and one Finished a sample."""
        return self

    async def __anext__(self) -> Delta | Finished:
        """Wait for the next event.

        Raises:
            MineDraftError: the request failed.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._deltas:
                return self._deltas.pop(next(iter(self._deltas)))
            if self._finished:
                return self._finished.pop(next(iter(self._finished)))
            if self._num_open == 0:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
