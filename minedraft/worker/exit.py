"""How a process that loaded torch ends: at once."""

from __future__ import annotations

import atexit
import gc


def end_quickly() -> None:
    """Spare this process the interpreter's last garbage collection.

    It walks every object of torch and transformers: measured 0.9 s of a core against 0.15 s, while
    a supervisor waits to start the next one. The kernel frees memory faster. Exit handlers and
    everything that is freed by its last reference still run.
    """
    atexit.unregister(gc.freeze)  # once is enough
    atexit.register(gc.freeze)
