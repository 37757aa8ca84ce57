"""Stops one thread of another process and lets it go on: a device that hangs, its loop alive."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_ALL_THREADS = 0x40000000  # __WALL: also those that are not children


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    return libc


def cpu_ticks(pid: int) -> dict[int, int]:
    """CPU time that each thread of a process has used."""
    ticks = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        ticks[int(task.name)] = int(fields[11]) + int(fields[12])
    return ticks


def busiest(before: dict[int, int], after: dict[int, int]) -> int:
    """Find the thread that used most CPU time between two looks."""
    return max(after, key=lambda tid: after[tid] - before.get(tid, 0))


def stop_thread(tid: int) -> None:
    """Stop it. Only the thread that called this can let it go on.

    Raises:
        OSError: this machine does not allow it.
    """
    libc = _libc()
    for request in (_SEIZE, _INTERRUPT):
        if libc.ptrace(request, tid, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace of thread {tid}")
    os.waitpid(tid, _ALL_THREADS)


def continue_thread(tid: int) -> None:
    """Let it go on."""
    _libc().ptrace(_DETACH, tid, None, None)
