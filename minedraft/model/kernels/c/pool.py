"""Threads of the kernels: started once, asleep while there is nothing to do."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Final

from minedraft.errors import KernelsError

if TYPE_CHECKING:
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
        threads: In all, the caller among them.

    Raises:
        KernelsError: Out of range, or the system refuses to start that many.
    """

    def __init__(self, library: Library, threads: int) -> None:
        create = library.raw("md_pool_create", ctypes.c_void_p, ctypes.c_int64)
        destroy = library.raw("md_pool_destroy", None, ctypes.c_void_p)
        handle = create(threads) if 1 <= threads <= MAX_THREADS else None
        if not isinstance(handle, int):
            raise KernelsError(f"threads={threads}: cannot start them; want 1..{MAX_THREADS}")
        self.handle = handle
        """The first argument of every parallel kernel."""
        self.threads = threads
        self._end = weakref.finalize(self, destroy, handle)
        # At exit the threads may be in the middle of a step that nobody waits for.
        self._end.atexit = False

    def close(self) -> None:
        """End the threads; no kernel may run. Twice is allowed."""
        self._end()
