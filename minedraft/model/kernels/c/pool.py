"""Threads of the kernels: started once, asleep while there is nothing to do."""

from __future__ import annotations

import ctypes
import os
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from minedraft.errors import KernelsError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from minedraft.model.kernels.c.library import Library

MAX_THREADS: Final = 256
"""As src/pool.h has it."""


class Pool:
    """Threads that share the work of a kernel with the thread that calls it.

    They run on the cores of the thread that makes the pool, so make it on the device thread. A pool
    that nobody holds any more ends its threads; the end of the process ends them anyway, and a
    forked child works without them.

    Args:
        library: Whose kernels they run.
        threads: Of an ordinary call, the caller among them.
        spare: Cores for further threads, one each, that `use` adds. They sleep otherwise.

    Raises:
        KernelsError: Out of range, or the system refuses to start that many.
    """

    def __init__(self, library: Library, threads: int, spare: Collection[int] = ()) -> None:
        create = library.raw("md_pool_create", ctypes.c_void_p, ctypes.c_int64)
        destroy = library.raw("md_pool_destroy", None, ctypes.c_void_p)
        self._use = library.raw("md_pool_use", ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)
        own = os.sched_getaffinity(0)
        total = threads + len(spare)
        is_possible = threads >= 1 and total <= MAX_THREADS
        with _running_on(own | {*spare}):  # a new thread runs where this one may
            handle = create(total) if is_possible else None
        if not isinstance(handle, int):
            raise KernelsError(f"threads={total}: cannot start them; want 1..{MAX_THREADS}")
        self.handle = handle
        """The first argument of every parallel kernel."""
        self.threads = total
        """In all, those on spare cores too."""
        self._end = weakref.finalize(self, destroy, handle)
        # At exit the threads may be in the middle of a step that nobody waits for.
        self._end.atexit = False
        if spare:
            places = [own] * (threads - 1) + [{core} for core in spare]
            self._place(library, places)
            self.use(threads)

    def use(self, threads: int) -> None:
        """Split the next calls over so many threads; no kernel may run.

        Raises:
            KernelsError: there are not so many.
        """
        if self._use(self.handle, threads):
            raise KernelsError(f"threads={threads}: the pool has 1..{self.threads}")

    def _place(self, library: Library, places: Sequence[Collection[int]]) -> None:
        place = library.raw(
            "md_pool_place",
            ctypes.c_int32,
            *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64),
        )
        for thread, cores in enumerate(places, 1):
            listed = (ctypes.c_int64 * len(cores))(*cores)
            if place(self.handle, thread, listed, len(cores)):
                self.close()
                raise KernelsError(f"thread {thread} cannot run on cores {sorted(cores)}")

    def close(self) -> None:
        """End the threads; no kernel may run. Twice is allowed."""
        self._end()


@contextmanager
def _running_on(cores: Collection[int]) -> Iterator[None]:
    """Let the calling thread run on these cores meanwhile.

    Raises:
        KernelsError: it may not.
    """
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores)
    except OSError as err:
        raise KernelsError(f"cores {sorted(cores)}: {err.strerror}") from None
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
