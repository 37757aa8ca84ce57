"""The process that made a client. A fork of it gets an error instead of waiting for ever.

gRPC's asyncio has one thread that reads all connections of a process. A fork does not have it, so
nothing would ever come to its end there: not even a deadline.
"""

from __future__ import annotations

import os

from minedraft.errors import PreconditionError

_first_user: int | None = None
"""The process that opened the first channel; forks inherit the value."""


class HomeProcess:
    """Remembers this process. Create it before the channel.

    Raises:
        PreconditionError: this process was forked from one that had used gRPC.
    """

    def __init__(self) -> None:
        global _first_user  # noqa: PLW0603  # as is gRPC's thread: one per process
        self._pid = os.getpid()
        if _first_user is None:
            _first_user = self._pid
        if _first_user != self._pid:
            raise PreconditionError(
                f"process {self._pid} was forked from {_first_user}, which had a client already, "
                "and gRPC does not work in such a fork: make clients after the fork only, or start "
                "processes by multiprocessing's 'spawn'"
            )

    @property
    def is_here(self) -> bool:
        """Whether this is that process, and not a fork of it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Refuse a fork.

        Raises:
            PreconditionError: this is one.
        """
        if not self.is_here:
            raise PreconditionError(
                f"the client was made before a fork, in process {self._pid}, and this is "
                f"{os.getpid()}: make clients after the fork only, or start processes by "
                "multiprocessing's 'spawn'"
            )
