"""Runs a link over a native library in a daemon thread, and ends it when the process exits.

A thread that returns from C++ into an interpreter that is going away aborts the process, so a
process that exits closes its links and waits for their threads: at most their own patience.
"""

from __future__ import annotations

import atexit
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class _Thread:
    """A link's thread, and how to end it."""

    thread: threading.Thread

    def __init__(self, close: Callable[[], None], patience_s: float) -> None:
        self.close = close
        self.patience_s = patience_s


_live: set[_Thread] = set()
"""Links of this process whose thread still runs."""


def start(
    name: str,
    run: Callable[[Future[None]], None],
    *,
    close: Callable[[], None],
    patience_s: float,
) -> Future[None]:
    """Start a link's thread.

    Args:
        name: Of the thread.
        run: Its body; resolves the future it is given once the link is formed, or fails it.
        close: Makes `run` return, when the process exits.
        patience_s: Longest wait for that.

    Returns:
        The future; already running, so not cancellable.
    """
    formed: Future[None] = Future()
    formed.set_running_or_notify_cancel()
    link = _Thread(close, patience_s)

    def live() -> None:
        try:
            run(formed)
        finally:
            _live.discard(link)

    _live.add(link)
    link.thread = threading.Thread(target=live, name=name, daemon=True)
    link.thread.start()
    return formed


@atexit.register
def _end_links() -> None:
    links = tuple(_live)
    for link in links:
        link.close()
    for link in links:
        link.thread.join(link.patience_s)
