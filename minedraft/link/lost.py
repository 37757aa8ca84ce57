"""A latch that reports the loss of a link once. Thread-safe. Knows no transport."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minedraft.link.endpoints import OnLost


class LostLatch:
    """Open until the link is lost or closed, whichever comes first.

    Args:
        epoch: Number of the link.
        on_lost: Gets (epoch, reason), in the thread that found out.
    """

    def __init__(self, epoch: int, on_lost: OnLost) -> None:
        self._epoch = epoch
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """Whether the link still stands."""
        return self._is_open

    def shut(self) -> bool:
        """Close without a report; return True to the first caller."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        return was_open

    def report(self, reason: str) -> None:
        """Report the loss to the owner. Only the caller that shut the latch calls this, once."""
        self._on_lost(self._epoch, reason)
