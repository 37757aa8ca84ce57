"""Returns freed memory to the system, after the load or release of a model."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Have the C library return its free pages. Blocks for milliseconds: not on the event loop.

    glibc keeps what was freed below its mmap threshold (up to 32 MiB, so all but the largest
    weights) in the arena of the thread that allocated it. Each model is loaded in a thread of its
    own, so it is laid out in another arena than the last one, and every arena keeps the holes of
    the models it has seen. A fixed threshold (M_MMAP_THRESHOLD) would cure that too, but then each
    draft step would fault its logits' pages in afresh.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)
