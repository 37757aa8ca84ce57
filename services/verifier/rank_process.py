"""Starts, watches and kills one rank beside rank 0, a child process. Knows no model.

The child says "up" on its stdout once it can meet the others, and why it ended if it had a reason.
Its stderr is ours. Nothing else connects us: it dies when we do (see `rank_worker`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from minedraft.errors import WorkerUnavailableError

if TYPE_CHECKING:
    from typing import Self

MODULE = "minedraft.services.verifier.rank_worker"
UP = "up"
_MOST_TOLD = 2000
"""Characters kept of what a child says last."""


@dataclass(frozen=True, slots=True)
class RankOrder:
    """What a rank is started with; travels as JSON on its command line, so nothing secret."""

    rank: int
    size: int
    parent_pid: int
    store: str
    model: str
    dtype: str
    kernels: str
    num_blocks: int
    block_size: int
    device: str
    cores: tuple[int, ...] | None
    threads: int
    timeout_s: float

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From the command line."""
        fields = json.loads(text)
        cores = fields.pop("cores")
        return cls(**fields, cores=None if cores is None else tuple(cores))


class RankProcess:
    """A running rank."""

    def __init__(self, order: RankOrder, process: asyncio.subprocess.Process) -> None:
        self._order = order
        self._process = process
        self._said: list[str] = []
        self._up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._end = asyncio.create_task(self._listen(), name=f"rank-{order.rank}")

    @classmethod
    async def start(cls, order: RankOrder) -> Self:
        """Start it. A session of its own: Ctrl-C reaches it through rank 0, in our order."""
        threads = str(order.threads)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            MODULE,
            order.to_json(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        )
        return cls(order, process)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    async def up(self) -> None:
        """Wait until it can meet the others, or has ended."""
        await asyncio.wait((self._up, self._end), return_when=asyncio.FIRST_COMPLETED)

    async def ended(self) -> int:
        """Wait for its end.

        Returns:
            Its exit code, negative for a signal.
        """
        return await asyncio.shield(self._end)

    async def died(self) -> None:
        """Wait for an unexpected end.

        Raises:
            WorkerUnavailableError: always; says how, and why if the rank said so.
        """
        code = await self.ended()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        why = f": {self._said[-1]}" if self._said else ""
        raise WorkerUnavailableError(f"rank {self._order.rank} of {self._order.size} {how}{why}")

    def kill(self) -> None:
        """End it at once; no more than that if it has ended."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _listen(self) -> int:
        stdout = self._process.stdout
        pending = b""
        while stdout is not None and (piece := await stdout.read(_MOST_TOLD)):
            *lines, pending = (pending + piece).split(b"\n")
            pending = pending[-_MOST_TOLD:]
            for line in lines:
                text = line.decode(errors="replace").strip()[:_MOST_TOLD]
                if text == UP and not self._up.done():
                    self._up.set_result(None)
                elif text:
                    self._said = [text]
        return await self._process.wait()
