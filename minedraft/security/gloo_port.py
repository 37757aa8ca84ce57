"""Shuts the ports that gloo leaves open: a complete group accepts no further connection.

gloo listens for as long as its group exists. It keeps every connection, also one that says nothing,
and when accept fails, at the limit of open files say, it throws in a thread of its own and the
process is gone. It gives no access to that socket, so it is found among this process's files: it is
the one whose address this end has told its peers.
"""

from __future__ import annotations

import os
import re
import resource
import select
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minedraft.errors import WorkerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELLO_BYTES: Final = 8
"""Bytes that a gloo peer sends first: a sequence number."""
_SPARE_FILES: Final = 64
"""Open files that must be left before gloo listens; forming takes a dozen, for milliseconds."""
_FILES: Final = Path("/proc/self/fd")
_WATCHES: Final = re.compile(r"^tfd:\s*(\d+)", re.MULTILINE)
_BYTES_RECEIVED: Final = 128
"""Offset of `tcpi_bytes_received` in Linux's struct tcp_info."""


def check_spare_files() -> None:
    """Check that gloo will not run out of open files while it listens.

    Raises:
        WorkerUnavailableError: few are left.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = sum(1 for _ in _FILES.iterdir())
    if limit != resource.RLIM_INFINITY and used > limit - _SPARE_FILES:
        raise WorkerUnavailableError(f"gloo: {used} of {limit} files are open, want {_SPARE_FILES}")


def shut(told: bytes) -> int:
    """Stop accepting, and close earlier connections that are no peers.

    The socket stays a listening one, as gloo believes, with room for one who waits in the kernel.

    Args:
        told: What this end has told its peers, others' words may be among it: gloo's addresses, as
            it writes them.

    Returns:
        How many were sent away.

    Raises:
        WorkerUnavailableError: the socket was not found: this gloo differs from those we know.
    """
    ports = {
        fd: mine.getsockname()
        for fd, mine in _sockets()
        if _listens(mine) and _as_in_memory(mine.family, mine.getsockname()) in told
    }
    if not ports:
        raise WorkerUnavailableError("gloo: its listening socket was not found, so it stays open")
    watched = _watched()
    if not ports.keys() & watched.keys():
        raise WorkerUnavailableError("gloo: nothing watches its listening socket")
    for fd in ports.keys() & watched.keys():
        # The poll of a listening socket knows readable and nothing else, so with no event wanted
        # there will be none. It stays registered: gloo throws where it cannot unregister.
        with select.epoll.fromfd(os.dup(watched[fd])) as poll:
            poll.modify(fd, 0)
        with socket.socket(fileno=os.dup(fd)) as listening:
            listening.listen(0)
    num_sent_away = 0
    for _fd, mine in _sockets():
        is_here = mine.getsockname() in ports.values() and not _listens(mine)
        if is_here and _bytes_received(mine) < _HELLO_BYTES:
            num_sent_away += 1
            with suppress(OSError):  # it has left by itself
                mine.shutdown(socket.SHUT_RDWR)
    return num_sent_away


def _as_in_memory(family: int, address: tuple[str, int]) -> bytes:
    """The beginning of a sockaddr_in or sockaddr_in6, as C has it."""
    head = struct.pack("=H", family) + struct.pack("!H", address[1])
    flow = b"" if family == socket.AF_INET else bytes(4)
    return head + flow + socket.inet_pton(family, address[0].partition("%")[0])


def _sockets() -> Iterator[tuple[int, socket.socket]]:
    """Yield a copy of every TCP socket of this process, and close it afterwards."""
    for fd in _files("socket:"):
        try:
            copy = socket.socket(fileno=os.dup(fd))
        except OSError:  # closed meanwhile
            continue
        with copy:
            is_tcp = copy.type == socket.SOCK_STREAM and copy.family in {
                socket.AF_INET,
                socket.AF_INET6,
            }
            if is_tcp:
                yield fd, copy


def _watched() -> dict[int, int]:
    """Descriptors that some epoll watches -> the descriptor of that epoll."""
    found: dict[int, int] = {}
    for poll in _files("anon_inode:[eventpoll]"):
        with suppress(OSError):
            info = Path(f"/proc/self/fdinfo/{poll}").read_text()
            found.update((int(fd), poll) for fd in _WATCHES.findall(info))
    return found


def _files(kind: str) -> Iterator[int]:
    for link in _FILES.iterdir():
        with suppress(OSError):  # closed meanwhile
            if str(link.readlink()).startswith(kind):
                yield int(link.name)


def _listens(mine: socket.socket) -> bool:
    return bool(mine.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _bytes_received(mine: socket.socket) -> int:
    info = mine.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    if len(info) < _BYTES_RECEIVED + 8:
        return _HELLO_BYTES  # an older kernel does not say, so no connection is closed
    return int(struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0])
