"""How much memory this process holds."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Resident memory of this process. Reads a file: not on the event loop."""
    statm = Path("/proc/self/statm").read_text(encoding="ascii")
    return int(statm.split()[1]) * _PAGE_BYTES
