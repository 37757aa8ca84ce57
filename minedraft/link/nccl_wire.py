"""A pipe of fixed-size packets over an NCCL communicator of two ranks. Knows no control plane.

Every call into NCCL is made here, by the link's own thread, and none of them blocks: what is asked
for is polled, with a deadline and a look at whether the link is still wanted. That is how a wait
ends when the peer is gone, which NCCL itself may never notice. The end is always an abort. Destroy
and finalize are collective and hang with a dead peer, so nothing here can call them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from minedraft.errors import WorkerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.packets.rows import Words

VERIFIER: Final = 0
"""Rank of the receiver."""
DRAFTER: Final = 1
"""Rank of the sender."""
_SPINS: Final = 50
"""Polls without a pause; a packet on its way arrives within them."""
_PAUSE_S: Final = 100e-6
"""Pause between later polls: a hundredth of a step, and the engine gets the interpreter."""


class Stage(Protocol):
    """A preallocated packet on the device with its pinned copy on the host and their stream."""

    def load(self, words: Words) -> None:
        """Copy a packet to the device; in stream order."""

    def clear(self) -> None:
        """Zero the packet on the device; in stream order."""

    def unload(self) -> None:
        """Copy the packet to the host; in stream order."""

    def mark(self) -> None:
        """Note this point of the stream."""

    def is_past(self) -> bool:
        """Whether the device has come to the last mark.

        Raises:
            WorkerUnavailableError: the device failed.
        """

    def words(self) -> Words:
        """Return a copy of the packet on the host; once `is_past` a mark after `unload`."""


class Communicator(Protocol):
    """Two ranks. Every method returns at once; all raise WorkerUnavailableError if NCCL fails."""

    def is_ready(self) -> bool:
        """Whether all operations so far are under way on the stream."""

    def send(self, stage: Stage, peer: int) -> None:
        """Send the packet of a stage."""

    def recv(self, stage: Stage, peer: int) -> None:
        """Receive into the packet of a stage."""

    def abort(self) -> None:
        """End the communicator and its operations. No other call may follow."""


class Library(Protocol):
    """The NCCL of this process."""

    @property
    def version(self) -> str:
        """Version, such as "2.30.7"."""

    @property
    def device(self) -> str:
        """CUDA device."""

    def unique_id(self) -> bytes:
        """Name a new communicator; this process must be one of its ranks."""

    def join(self, unique_id: bytes, rank: int) -> Communicator:
        """Begin to form the communicator of this name.

        Raises:
            ProtocolError: that is no name.
            WorkerUnavailableError: NCCL refused.
        """

    def stage(self, num_words: int) -> Stage:
        """Allocate a packet. From the thread that uses it."""


class Wire:
    """The pipe. Belongs to one thread.

    Args:
        library: NCCL.
        rank: VERIFIER or DRAFTER.
        num_words: Of every packet.
        is_wanted: Looked at in every wait.
        op_timeout_s: Longest wait for one packet to go or come.
    """

    def __init__(
        self,
        library: Library,
        rank: int,
        *,
        num_words: int,
        is_wanted: Callable[[], bool],
        op_timeout_s: float,
    ) -> None:
        self._library = library
        self._rank = rank
        self._peer = 1 - rank
        self._peer_name = ("verifier", "drafter")[self._peer]
        self._is_wanted = is_wanted
        self._op_timeout_s = op_timeout_s
        self._stage = library.stage(num_words)
        self._comm: Communicator | None = None

    def connect(self, unique_id: bytes, timeout_s: float) -> None:
        """Form the communicator.

        Raises:
            ProtocolError: the name is malformed.
            WorkerUnavailableError: it did not form, in time or at all.
        """
        self._comm = self._library.join(unique_id, self._rank)
        self._wait(self._comm.is_ready, self._comm, timeout_s)

    def send(self, words: Words) -> None:
        """Send one packet.

        Raises:
            WorkerUnavailableError: not sent: the peer is gone or hangs, or the link was closed.
        """
        comm, stage = self._joined(), self._stage
        until = time.monotonic() + self._op_timeout_s
        stage.load(words)
        comm.send(stage, self._peer)
        self._finish(comm, until)

    def recv(self) -> Words:
        """Receive one packet.

        Raises:
            WorkerUnavailableError: none came: the peer is gone or hangs, or the link was closed.
        """
        comm, stage = self._joined(), self._stage
        until = time.monotonic() + self._op_timeout_s
        stage.clear()  # a short message must not be completed by the one before it
        comm.recv(stage, self._peer)
        # NCCL wants its stream for itself until it says that the receive is on it.
        self._wait(comm.is_ready, comm, until - time.monotonic())
        stage.unload()
        self._finish(comm, until)
        return stage.words()

    def abort(self) -> None:
        """End the communicator, if there is one."""
        comm, self._comm = self._comm, None
        if comm is not None:
            comm.abort()

    def _joined(self) -> Communicator:
        if self._comm is None:
            raise WorkerUnavailableError("nccl: not connected")
        return self._comm

    def _finish(self, comm: Communicator, until: float) -> None:
        self._wait(comm.is_ready, comm, until - time.monotonic())
        self._stage.mark()
        self._wait(self._stage.is_past, comm, until - time.monotonic())

    def _wait(self, is_done: Callable[[], bool], comm: Communicator, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        polls = 0
        while not is_done():
            comm.is_ready()  # raises what went wrong meanwhile
            if not self._is_wanted():
                raise WorkerUnavailableError("nccl: the link was closed")
            if time.monotonic() > until:
                raise WorkerUnavailableError(
                    f"nccl: the {self._peer_name} did nothing for {self._op_timeout_s:g} s"
                )
            polls += 1
            time.sleep(_PAUSE_S if polls > _SPINS else 0)
