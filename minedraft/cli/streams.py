"""Guards stdout and stderr of the command line against failing writes.

Results that cannot be written are an error that names stdout. What is said on stderr is lost
without one: stderr is the last resort. Characters that a stream cannot show are written as escapes.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import IO, Any, cast

from minedraft.errors import ConfigError

_STDERR = 2


class OutputError(ConfigError):
    """stdout cannot be written; the message says why."""


class _Guarded:
    """Wraps a stream. Of its failures to write it raises the first and drops the others.

    Args:
        stream: The real one; None: it was closed when the process started.
        name: `stdout`, or `stderr`, whose failures it drops altogether.
    """

    def __init__(self, stream: IO[str] | None, name: str) -> None:
        self._stream = stream
        self._name = name
        self._is_broken = False

    def write(self, text: str) -> int:
        """Write.

        Raises:
            OutputError: stdout cannot be written.
        """
        if self._stream is None:
            self._fail("closed")
        elif not self._is_broken:
            try:
                self._stream.write(text)
            except (OSError, ValueError) as err:  # ValueError: closed meanwhile
                self._fail(getattr(err, "strerror", None) or str(err))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered.

        Raises:
            OutputError: stdout cannot be written.
        """
        if self._stream is not None and not self._is_broken:
            try:
                self._stream.flush()
            except (OSError, ValueError) as err:
                self._fail(getattr(err, "strerror", None) or str(err))

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever a stream has
        return getattr(self._stream if self._stream is not None else _NOWHERE, name)

    def _fail(self, why: str) -> None:
        if self._is_broken:
            return
        self._is_broken = True
        if self._stream is not None:
            # What is still buffered goes nowhere, else the interpreter tries again at its end.
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)
        if self._name == "stdout":
            raise OutputError(f"stdout: {why}")


_NOWHERE = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")


def guard() -> None:
    """Guard stdout and stderr of this process. Call this once, at its start."""
    # A descriptor that was closed is not left to the next socket or file that is opened.
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(fd)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = cast("Any", _Guarded(sys.stdout, "stdout"))
    sys.stderr = cast("Any", _Guarded(sys.stderr, "stderr"))


def read_stdin() -> str:
    """Read all of stdin.

    Raises:
        ConfigError: it is closed, or not text.
    """
    if sys.stdin is None:
        raise ConfigError("stdin: closed")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as err:
        raise ConfigError(f"stdin: not {err.encoding}: byte {err.start}") from None
