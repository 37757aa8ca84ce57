"""Carries the events of a request from the engine to one RPC, in bounded memory.

Never blocks the engine. A reader that lags gets its deltas joined, up to what one message carries;
one end a sample is kept, and the unread tokens are bounded by the request's max_tokens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from minedraft.api import Delta, Finished
    from minedraft.errors import MineDraftError

_MAX_JOINED_TOKENS: Final = 4096
"""Tokens per delta, well under the 4 MiB that a client takes."""
_MAX_JOINED_LOGPROBS: Final = 512
"""Tokens with log-probabilities per delta: 20 per token take 11 ms to encode (4096: 86 ms)."""


class EventStream:
    """Events of one request: the engine writes, one RPC reads.

    Args:
        num_samples: Samples that will each end once.
    """

    def __init__(self, num_samples: int) -> None:
        self._deltas: dict[int, deque[Delta]] = {}
        """Unread deltas by sample; no entry is empty, and all but the last of each are full."""
        self._finished: dict[int, Finished] = {}
        self._num_open = num_samples
        self._error: MineDraftError | None = None
        self._wake = asyncio.Event()

    def push(self, delta: Delta) -> None:
        """Hand over new output."""
        unread = self._deltas.setdefault(delta.index, deque())
        most = _MAX_JOINED_LOGPROBS if delta.logprobs else _MAX_JOINED_TOKENS
        if unread and len(unread[-1].token_ids) < most:
            last = unread.pop()
            delta = replace(
                last,
                token_ids=last.token_ids + delta.token_ids,
                text=last.text + delta.text,
                logprobs=last.logprobs + delta.logprobs,
            )
        unread.append(delta)
        self._wake.set()

    def finish(self, finished: Finished) -> None:
        """End a sample."""
        self._finished[finished.index] = finished
        self._num_open -= 1
        self._wake.set()

    def fail(self, err: MineDraftError) -> None:
        """End the stream with an error, and drop unread events."""
        if self._error is None:
            self._error = err
            self._wake.set()

    def __aiter__(self) -> EventStream:
        """Iterate over events: deltas, and one Finished per sample."""
        return self

    async def __anext__(self) -> Delta | Finished:
        """Wait for the next event.

        Raises:
            MineDraftError: the request failed.
        """
        while True:
            if self._error is not None:
                raise self._error
            for index in self._finished:
                if index not in self._deltas:  # else its own output comes first, not the others'
                    return self._finished.pop(index)
            if self._deltas:
                return self._next_delta()
            if self._num_open == 0:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()

    def _next_delta(self) -> Delta:
        index = next(iter(self._deltas))
        unread = self._deltas[index]
        delta = unread.popleft()
        if not unread:
            del self._deltas[index]
        return delta
