"""Runs long work in a low-priority thread beside the device thread.

Not for device work: that has one thread (minedraft/model/executor.py).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from minedraft.exit import leave_behind

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_NICENESS = 5
"""Where the two share a core, the device thread gets about three times as much of it. With 15
a swap on a busy machine took 11 s instead of 4."""


async def run_in_background(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `fn` in a new thread of low priority and return what it returns or raise what it raises.

    A cancelled call gives up the waiting only; nor does the process wait, if it ends meanwhile.
    """
    ended = threading.Event()

    def work() -> R:
        try:
            return fn(*args, **kwargs)
        finally:
            ended.set()

    # A pool of its own: a thread cannot take its priority back, so it must not be used again.
    pool = ThreadPoolExecutor(1, thread_name_prefix="background", initializer=_give_way)
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, work)
    except asyncio.CancelledError:
        leave_behind(lambda: not ended.is_set())
        raise
    finally:
        pool.shutdown(wait=False)


def _give_way() -> None:
    if sys.platform == "linux":  # elsewhere niceness is the process's, not the thread's
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
