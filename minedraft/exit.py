"""Ends processes at once, if they have nothing to clean up or too much of it."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import threading
from typing import TYPE_CHECKING, NoReturn

from minedraft import log

if TYPE_CHECKING:
    from collections.abc import Callable


def end_quickly() -> None:
    """Spare this process the interpreter's last garbage collection.

    It walks every object of torch and transformers: measured 0.9 s of a core against 0.15 s, while
    a supervisor waits to start the next one. The kernel frees memory faster. Exit handlers and
    everything that is freed by its last reference still run.
    """
    atexit.unregister(gc.freeze)  # once is enough
    atexit.register(gc.freeze)


def leave_behind(is_running: Callable[[], bool]) -> None:
    """Let this process end although a thread of a pool still works on abandoned work.

    The interpreter would wait for it, and a model that loads cannot be interrupted. So the process
    ends when the main thread has: orderly up to there, without exit handlers from there on. Its
    exit code is 0, as of one that was stopped.

    Args:
        is_running: Whether the thread is still at it when the main thread has ended; if not, the
            end is the usual one.
    """

    def end() -> None:
        if is_running():
            log.drain()
            os._exit(0)

    # The last registered is the first called: before the one that waits for threads of pools.
    # Exit handlers proper come after it, and nothing public comes before.
    threading._register_atexit(end)  # type: ignore[attr-defined]  # noqa: SLF001


def end_at_sigterm() -> None:
    """End at once at SIGTERM, even while waiting: there is nothing to clean up.

    The first process of a container has no default action for it: the kernel would drop it, the pod
    stay until the end of its grace, and a new coordinator wait for that. A thread of its own takes
    the signal: a handler runs in the main thread, which a signal just before a wait does not wake.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # here, and in threads to come

    def end() -> None:
        signal.sigwait({signal.SIGTERM})
        log.drain()
        os._exit(0)

    threading.Thread(target=end, name="end-at-sigterm", daemon=True).start()


def end_at_once() -> NoReturn:
    """End a forked child without the exit handlers of its parent."""
    os._exit(0)
