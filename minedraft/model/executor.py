"""Runs device work on the only thread that touches the device, on chosen cores.

Refuses to run two pieces of work at once, to interrupt one, and to run on the event loop.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Self

P = ParamSpec("P")
R = TypeVar("R")


class DeviceExecutor:
    """Runs device work first-in first-out on a thread of its own.

    A forward pass cannot be interrupted: cancelling `run` gives up the waiting only. The work still
    ends, its result is lost, and the next call queues behind it. So work must be repeatable;
    every row names the position it starts from, and feeding it again overwrites.

    The queue is unbounded because its length is bounded by the callers: one step per batch.

    Args:
        cores: CPU cores the device thread (and the threads torch starts from it) may run on; None:
            as the process.
        num_threads: Threads torch uses for one operation; None: as many as `cores`, or torch's own
            default without cores.
        clock: Monotonic seconds.

    Raises:
        ConfigError: A core does not exist or may not be used, or num_threads is under 1.
    """

    def __init__(
        self,
        *,
        cores: Collection[int] | None = None,
        num_threads: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cores = None if cores is None else frozenset(cores)
        if self._cores is not None:
            usable = os.sched_getaffinity(0)
            if not self._cores or not self._cores <= usable:
                raise ConfigError(f"cores={sorted(self._cores)}: usable are {sorted(usable)}")
            num_threads = len(self._cores) if num_threads is None else num_threads
        if num_threads is not None and num_threads < 1:
            raise ConfigError(f"num_threads={num_threads} is under 1")
        self._num_threads = num_threads
        self._clock = clock
        self._began_s: float | None = None
        self._num_unfinished = 0
        self._is_abandoned = False
        self._pool = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="device", initializer=self._settle
        )

    def submit(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Queue `fn` for the device thread; the future holds its result or exception.

        Work that is queued while other work runs starts without a turn of the event loop between.
        """
        loop = asyncio.get_running_loop()

        def work() -> R:
            self._began_s = self._clock()
            try:
                return fn(*args, **kwargs)
            finally:
                self._began_s = None

        future = loop.run_in_executor(self._pool, work)
        self._num_unfinished += 1
        future.add_done_callback(self._finished)
        return future

    @property
    def num_unfinished(self) -> int:
        """Pieces of work that are queued or run, as far as the event loop has heard."""
        return self._num_unfinished

    @property
    def busy_s(self) -> float:
        """Seconds that the current work has taken so far; 0: there is none."""
        began_s = self._began_s
        return 0.0 if began_s is None else self._clock() - began_s

    async def run(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `fn` on the device thread; return its result or raise its exception."""
        return await self.submit(fn, *args, **kwargs)

    def abandon(self) -> None:
        """Let `close` not wait for the current work, whose result is not needed.

        The interpreter still waits for it when it ends (see `minedraft.exit`).
        """
        self._is_abandoned = True

    async def close(self) -> None:
        """Drop work that has not begun, and wait for the current work."""
        wait = not self._is_abandoned
        await asyncio.to_thread(self._pool.shutdown, wait=wait, cancel_futures=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _finished(self, future: asyncio.Future[Any]) -> None:
        """Retrieve the exception of abandoned work; asyncio would log it as never retrieved."""
        self._num_unfinished -= 1
        if not future.cancelled():
            future.exception()

    def _settle(self) -> None:
        # Both calls act on the calling thread, so they must be made on it: on Linux pid 0 is this
        # thread, and OpenMP keeps the number of threads per thread.
        if self._cores is not None:
            os.sched_setaffinity(0, self._cores)
        if self._num_threads is not None:
            torch.set_num_threads(self._num_threads)
