"""Makes the allocator return the memory of large messages to the system. Knows no role.

glibc gives a block back to the system when it is freed, if it is larger than a threshold. It raises
that threshold to the largest block it has seen: after one message of 4 MB it keeps the next ones.
"""

from __future__ import annotations

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 128 * 1024
_ARENAS: Final = 2


def give_back() -> None:
    """From now on, free() returns large blocks to the system. glibc only."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library, with habits of its own
        return
    for name, value in (
        (_MMAP_THRESHOLD, _LARGE_BYTES),
        (_TRIM_THRESHOLD, _LARGE_BYTES),
        (_ARENA_MAX, _ARENAS),
    ):
        mallopt(name, value)
