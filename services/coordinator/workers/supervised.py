"""Contains the failures of one peer: catches, spaces out and reports its attempts.

Every task of a member, a link or a name does its work inside `attempt`. Nothing that comes out of
there reaches a task group, where it would end the service for everybody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import MineDraftError, ProtocolError, WorkerUnavailableError
from minedraft.repeats import Repeats
from minedraft.services.coordinator.workers.back_off import BackOff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

log = structlog.get_logger(__name__)

_MAX_SHOWN_CHARS = 300
"""Of a reason: the words may be the peer's."""


class Supervised:
    """See the module docstring; one for each peer and kind of work.

    Args:
        event: Of the log line that says that it failed.
        first_pause_s: See `BackOff`.
        clock: Monotonic seconds.
        facts: Of that line: who it is.
    """

    def __init__(
        self,
        event: str,
        *,
        first_pause_s: float,
        clock: Callable[[], float] = time.monotonic,
        **facts: str,
    ) -> None:
        self.error: MineDraftError | None = None
        """Why the last attempt failed; None: it ended well, or none has ended."""
        self.pause_s = 0.0
        """How long to wait before the next attempt."""
        self._event = event
        self._facts = facts
        self._clock = clock
        self._back_off = BackOff(first_pause_s)
        self._repeats = Repeats(clock=clock)
        self._works_since_s: float | None = None

    @property
    def reason(self) -> str:
        """Why the last attempt failed, for the operator; "": it did not."""
        return "" if self.error is None else shortened(str(self.error))

    def works(self) -> None:
        """It does its work from now on: the next failure is judged by how long it did."""
        self._works_since_s = self._clock()

    def never_worked(self) -> None:
        """What it seemed to do was of no use: the next failure is one of a row."""
        self._works_since_s = None

    def started_over(self) -> None:
        """The peer is another one than before: forget how often that one failed."""
        self._back_off.reset()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Contain what is raised inside: it is in `error` afterwards, counted and logged.

        Only the end of the task itself passes.
        """
        self.error, self.pause_s, self._works_since_s = None, 0.0, None
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # A call inside was cancelled, not this task; a group would take it for a quiet end.
            self.failed(WorkerUnavailableError("a call to it was cancelled"))
        except Exception as err:  # noqa: BLE001 a peer's, whatever it is: told, and never passed on
            self.failed(self._known(err))

    async def forever(self, work: Callable[[], Awaitable[None]]) -> None:
        """Attempt again and again what shall never end."""
        while True:
            with self.attempt():
                await work()
            await asyncio.sleep(self.pause_s)

    def failed(self, err: MineDraftError) -> None:
        """Note that an attempt failed, or that what it led to broke."""
        since_s, self._works_since_s = self._works_since_s, None
        worked_s = 0.0 if since_s is None else self._clock() - since_s
        self.error = err
        self.pause_s = self._back_off.after(err, worked_s)
        self.say(self._event, why=self.reason)

    def say(self, event: str, *, level: int = logging.WARNING, **facts: object) -> None:
        """Log a line, but each one at most once a minute."""
        repeated = self._repeats.facts(f"{event}\0{facts}")
        if repeated is not None:
            log.log(level, event, **facts, **self._facts, **repeated)

    def _known(self, err: Exception) -> MineDraftError:
        while isinstance(err, ExceptionGroup):
            err = err.exceptions[0]
        if isinstance(err, MineDraftError):
            return err
        if self._repeats.take(f"\0{type(err).__name__}") is not None:
            log.error("peer.unexpected", exc_info=err, **self._facts)
        return ProtocolError(f"unexpected {type(err).__name__}; the log says where")


def shortened(words: str) -> str:
    """Cut a reason that may be a peer's, and show its control characters as such."""
    cut = words if len(words) <= _MAX_SHOWN_CHARS else f"{words[:_MAX_SHOWN_CHARS]}..."
    return cut if cut.isprintable() else ascii(cut)
