"""Bounds the kernel caches of oneDNN, which torch uses on a CPU."""

from __future__ import annotations

import os

_BOUNDS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128", "LRU_CACHE_CAPACITY": "128"}


def bound() -> None:
    """Bound them for this process and its children. Call this before torch is loaded.

    Each of the two keeps 1024 kernels by default, one a shape: every number of tokens that a step
    can have costs some 2 MiB, so a worker grows for hours. With 128 it is as fast
    (benchmarks/LOG.md). Who has set these variables is left alone.
    """
    for name, value in _BOUNDS.items():
        os.environ.setdefault(name, value)
