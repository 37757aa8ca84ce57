"""Writes log lines to a file descriptor, through a bounded queue and a thread.

Whoever logs neither waits nor fails, whatever becomes of the reader or the disk. A line that cannot
be written is dropped and counted; the next one that can be is preceded by how many were lost.
"""

from __future__ import annotations

import io
import os
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_QUEUED_BYTES: Final = 2**20
"""Most bytes that wait for a reader; the sink drops further lines, and longer ones."""
DRAIN_S: Final = 1.0
"""Longest time that the end of a process waits for a reader."""


class _Piece(NamedTuple):
    data: bytes
    num_lines: int
    """Number of lines: 1, or 0 for a note."""
    num_told: int
    """Of a note: the lost lines that it reports."""


class LogSink:
    """Writes lines to a descriptor, in the order in which they came. Thread-safe.

    Args:
        fd: Where; is duplicated. Its flags are left alone: others may share it.
        note: Builds the line that says how many were lost.
        max_bytes: Most that is queued.
    """

    def __init__(
        self, fd: int, *, note: Callable[[int], str], max_bytes: int = MAX_QUEUED_BYTES
    ) -> None:
        self._fd = os.dup(fd)
        self._note = note
        self._max_bytes = max_bytes
        # Reentrant: a signal handler or a finalizer may log while its thread is in here.
        self._changed = threading.Condition(threading.RLock())
        self._queue: deque[_Piece] = deque()
        self._num_bytes = 0
        self._is_writing = False
        self._is_closed = False
        self._num_unsaid = 0
        self._is_torn = False  # the last line ended in the middle
        self.num_dropped = 0
        """Number of lines lost since the start."""
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, text: str) -> None:
        """Queue whole lines. Neither waits nor raises."""
        data = text.encode("utf-8", "backslashreplace")
        with self._changed:
            if self._is_closed or self._num_bytes + len(data) > self._max_bytes:
                self._lose(1)
                return
            self._say_unsaid()
            self._enqueue(_Piece(data, 1, 0))

    def flush(self) -> None:
        """Do nothing: loggers flush after each line and must not wait. See `drain`."""

    def drain(self, timeout_s: float = DRAIN_S) -> bool:
        """Wait until every line is written or dropped.

        Returns:
            Whether it was, in time.
        """
        end = time.monotonic() + timeout_s
        with self._changed:
            self._say_unsaid()
            while self._queue or self._is_writing:
                left_s = end - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
        return True

    def close(self) -> None:
        """Stop after the queued lines. Does not wait."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _say_unsaid(self) -> None:
        if self._num_unsaid:
            num, self._num_unsaid = self._num_unsaid, 0
            self._enqueue(_Piece(self._note(num).encode("utf-8", "backslashreplace"), 0, num))

    def _enqueue(self, piece: _Piece) -> None:
        self._queue.append(piece)
        self._num_bytes += len(piece.data)
        self._changed.notify_all()

    def _lose(self, num_lines: int, num_told: int = 0) -> None:
        self.num_dropped += num_lines
        self._num_unsaid += num_lines + num_told

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                while not self._queue:
                    if self._is_closed:
                        os.close(self._fd)
                        return
                    self._changed.wait()
                piece = self._queue.popleft()
                self._num_bytes -= len(piece.data)
                self._is_writing = True
            if not self._put(piece.data):
                with self._changed:
                    self._lose(piece.num_lines, piece.num_told)

    def _put(self, data: bytes) -> bool:
        """Write a line completely, however slow its reader is."""
        rest = memoryview(b"\n" + data if self._is_torn else data)
        begun = False
        try:
            while rest:
                try:
                    rest = rest[os.write(self._fd, rest) :]
                    begun = True
                except BlockingIOError:  # another process that shares it made it so
                    ready = select.poll()
                    ready.register(self._fd, select.POLLOUT)
                    ready.poll()
        except OSError:
            self._is_torn = self._is_torn or begun
            return False
        self._is_torn = False
        return True


class StderrFace(io.TextIOBase):
    """Replaces `sys.stderr` by a sink, for what Python and its libraries write there.

    Args:
        sink: Where whole lines go.
        fd: For those who ask: child processes, `faulthandler`.
    """

    _MAX_CHARS = 65_536

    def __init__(self, sink: LogSink, fd: int) -> None:
        self.sink: Final = sink
        self._fd = fd
        self._lock = threading.RLock()
        self._begun = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only, as that of every stream
        """Encoding of the written bytes."""
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]  # read-only, as that of every stream
        """How half a surrogate pair is encoded."""
        return "backslashreplace"

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """Descriptor of stderr itself."""
        return self._fd

    def isatty(self) -> bool:
        """Whether stderr is a terminal."""
        return os.isatty(self._fd)

    def write(self, text: str, /) -> int:
        """Queue complete lines; keep the rest until its end comes."""
        with self._lock:
            whole, newline, self._begun = (self._begun + text).rpartition("\n")
            if len(self._begun) > self._MAX_CHARS:
                whole, newline, self._begun = whole + newline + self._begun, "\n", ""
            if newline:
                self.sink.write(whole + newline)
        return len(text)

    def flush(self) -> None:
        """Do nothing: a print must not wait."""

    def finish(self) -> None:
        """Queue an unfinished line."""
        with self._lock:
            if self._begun:
                self.write("\n")
