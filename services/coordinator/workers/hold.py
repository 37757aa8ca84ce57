"""Tracks whether this coordinator holds the verifier: only then may it hold drafters.

Two coordinators that share workers must not each hold what the other one needs. So the verifier
decides: drafters are dialled once it is held, and released when it belongs to another
coordinator, or has been away for so long that it may.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from minedraft.errors import WorkerUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


NOT_HELD = "not dialled while this coordinator does not hold the verifier"


class Hold:
    """See the module docstring.

    Args:
        keep_s: Longest that drafters are kept after the verifier was lost.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._held = asyncio.Event()
        self._scopes: set[asyncio.Timeout] = set()
        self._release: asyncio.TimerHandle | None = None

    def taken(self) -> None:
        """The verifier's session is open."""
        self._cancel()
        self._held.set()

    def lost(self) -> None:
        """The verifier's session is over; it may be back in a moment."""
        self._cancel()
        self._release = asyncio.get_running_loop().call_later(self._keep_s, self.refused)

    def refused(self) -> None:
        """The verifier serves another coordinator, or must be thought to."""
        self._cancel()
        self._held.clear()
        for scope in self._scopes:
            if not scope.expired():
                scope.reschedule(0.0)  # long ago

    async def wait(self) -> None:
        """Wait until the verifier is held."""
        await self._held.wait()

    @asynccontextmanager
    async def lasts(self) -> AsyncIterator[None]:
        """For a drafter's session: ends what is inside when drafters must be released.

        Raises:
            WorkerUnavailableError: they must.
        """
        scope = asyncio.timeout(None if self._held.is_set() else 0)
        try:
            async with scope:
                self._scopes.add(scope)
                yield
        except TimeoutError:
            if not scope.expired():
                raise
            raise WorkerUnavailableError(NOT_HELD) from None
        finally:
            self._scopes.discard(scope)

    def _cancel(self) -> None:
        if self._release is not None:
            self._release.cancel()
            self._release = None
