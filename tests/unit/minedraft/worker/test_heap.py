from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from minedraft.worker.heap import give_back

PIECE, NUM_PIECES = 2**16, 512


def resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library does not trim"
)
def test_memory_freed_between_what_is_still_used_goes_back_to_the_system():
    pieces = [bytearray(PIECE) for _ in range(NUM_PIECES)]
    del pieces[:-1]  # the last one keeps the heap from shrinking by itself
    before = resident_bytes()
    give_back()
    assert before - resident_bytes() > PIECE * NUM_PIECES / 2
    assert len(pieces) == 1
