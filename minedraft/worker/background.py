"""Long work beside the device thread, in a thread of its own that gives way to it.

Not for device work: that has one thread (minedraft/model/executor.py).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_NICENESS = 5
"""Where the two share a core, the device thread gets about three times as much of it. With 15
a swap on a busy machine took 11 s instead of 4."""


async def run_in_background(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `fn` in a new thread of low priority and return what it returns or raise what it raises.

    A cancelled call gives up the waiting only.
    """
    # A pool of its own: a thread cannot take its priority back, so it must not be used again.
    pool = ThreadPoolExecutor(1, thread_name_prefix="background", initializer=_give_way)
    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(pool, lambda: fn(*args, **kwargs))
    finally:
        pool.shutdown(wait=False)


def _give_way() -> None:
    if sys.platform == "linux":  # elsewhere niceness is the process's, not the thread's
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
