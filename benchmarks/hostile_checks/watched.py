"""One stream whose tokens' times are kept: how long others' deeds make it wait."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from minedraft.client import Client

_PROMPT = [1000, 1001, 1002]


class Watched:
    """A long greedy stream, begun anew whenever it ends; gaps within one stream only."""

    def __init__(self, client: Client, num_tokens: int = 4000) -> None:
        self._client = client
        self._num_tokens = num_tokens
        self.gaps: list[tuple[float, float]] = []
        """(when it ended, its length), monotonic seconds."""
        self.reference: list[int] = []
        self.num_changed = 0
        self.num_tokens_now = 0
        """Of the stream that is running."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stream until left."""
        task = asyncio.create_task(self._stream_on())
        try:
            while not self.gaps and not task.done():  # noqa: ASYNC110 its first tokens
                await asyncio.sleep(0.01)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and (failed := task.exception()):
            raise failed

    async def _stream_on(self) -> None:
        while True:
            got: list[int] = []
            self.num_tokens_now = 0
            last = 0.0
            stream = self._client.stream(
                _PROMPT, max_tokens=self._num_tokens, temperature=0.0, ignore_eos=True
            )
            async for delta in stream:
                now = time.monotonic()
                if last:
                    self.gaps.append((now, now - last))
                last = now
                got.extend(delta.token_ids)
                self.num_tokens_now = len(got)
                if self.reference:
                    at = len(got)
                    want = self.reference[at - len(delta.token_ids) : at]
                    self.num_changed += list(delta.token_ids) != want
            if not self.reference:
                self.reference = got

    def longest(self, since: float, until: float) -> float:
        """Longest gap, in seconds, that overlaps a span of the monotonic clock."""
        return max(
            (gap for end, gap in self.gaps if end > since and end - gap < until), default=0.0
        )
