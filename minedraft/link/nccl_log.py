"""Reads from NCCL's log which transport it chose; enables the log while a link forms.

A silent fall-back to TCP is the commonest failure in the field, and only the log tells. NCCL reads
NCCL_DEBUG once in a process, at its first use, so it is set for that moment and put back; a user's
own NCCL_DEBUG wins, and then the way stays unknown. The log is private to this process and ends
with it.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_VIA: Final = re.compile(r"\bvia ((?:P2P|SHM|NET)(?:/[\w.:-]+)+)")
_directory: Path | None = None
"""Path of the log, once it is enabled."""


class TransportLog:
    """The log from one moment on."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._start = path.stat().st_size if path is not None and path.exists() else 0

    def transports(self) -> str:
        """Return the transport chosen since then, such as "NET/Socket/0"; empty: unknown."""
        if self._path is None or not self._path.exists():
            return ""
        with self._path.open("rb") as file:
            file.seek(self._start)
            return transports_in(file.read().decode(errors="replace"))


def transports_in(text: str) -> str:
    """Return the transports in a log of NCCL, each once, in order."""
    return ", ".join(dict.fromkeys(_VIA.findall(text)))


@contextmanager
def transport_log() -> Iterator[TransportLog]:
    """Enable NCCL's log in the context, unless the environment configures it."""
    path = _log_path()
    if path is None:
        yield TransportLog(None)
        return
    settings = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(path)}
    os.environ.update(settings)
    try:
        yield TransportLog(path)
    finally:
        for name, value in settings.items():
            if os.environ.get(name) == value:  # two links at once: the first to end cleans up
                del os.environ[name]


def _log_path() -> Path | None:
    global _directory  # noqa: PLW0603 NCCL keeps the file it was first told
    ours = str(_directory / "nccl.log") if _directory is not None else None
    is_set = "NCCL_DEBUG" in os.environ or "NCCL_DEBUG_FILE" in os.environ
    is_ours = ours is not None and os.environ.get("NCCL_DEBUG_FILE") == ours
    if is_set and not is_ours:
        return None
    if _directory is None:
        _directory = Path(tempfile.mkdtemp(prefix="minedraft-nccl-"))  # for this user alone
        atexit.register(shutil.rmtree, _directory, ignore_errors=True)
    return _directory / "nccl.log"
