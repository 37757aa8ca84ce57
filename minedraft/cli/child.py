"""Starts, watches and stops one child process. Knows processes, not roles."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

_TAIL_LINES = 15
_MAX_TAIL_BYTES = 16_384


class ChildError(ConfigError):
    """A child ended by itself; the message quotes the end of its log."""


class Child:
    """Runs `minedraft <arguments>` in a session of its own, with its output in a file.

    A socket pair ties the child to this process: the child writes its address when it serves, and
    stops when this process is gone.
    """

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, ours: socket.socket, log: Path
    ) -> None:
        self.name = name
        self.log = log
        self._process = process
        self._ours = ours

    @classmethod
    async def start(
        cls,
        name: str,
        arguments: Sequence[str],
        *,
        settings: Mapping[str, Any] = MappingProxyType({}),
        log: Path,
        env: Mapping[str, str],
    ) -> Self:
        """Start the child.

        Args:
            name: For messages.
            arguments: Of the command line; the options that tie the child to us are added.
            settings: Of the command's options; they travel as one JSON object on its stdin.
            log: File for its stdout and stderr.
            env: Added to this process's environment.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            file = await asyncio.to_thread(log.open, "wb")
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "minedraft.cli.main",
                    *arguments,
                    f"--parent-fd={theirs.fileno()}",
                    "--settings=-",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=file,
                    stderr=file,
                    env={**os.environ, **env},
                    pass_fds=(theirs.fileno(),),
                    # Ctrl-C must reach it through us, in our order, not from the terminal.
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
            finally:
                await asyncio.to_thread(file.close)
        child = cls(name, process, ours, log)
        await child._configure(settings)
        return child

    async def _configure(self, settings: Mapping[str, Any]) -> None:
        stdin = cast("asyncio.StreamWriter", self._process.stdin)
        stdin.write(json.dumps(dict(settings)).encode())
        with suppress(ConnectionError):  # it has ended already, and `ready` says how
            await stdin.drain()
        stdin.close()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def ready(self) -> str:
        """Wait until the child serves.

        Returns:
            Its address.

        Raises:
            ChildError: it ended instead.
        """
        loop = asyncio.get_running_loop()
        received = b""
        while not received.endswith(b"\n"):
            piece = await loop.sock_recv(self._ours, 256)
            if not piece:  # its end is closed: it is gone, or going
                await self.died()
            received += piece
        return received.decode().strip()

    async def died(self) -> None:
        """Wait until the child ends.

        Raises:
            ChildError: always, when it has ended.
        """
        code = await self._process.wait()
        tail = await asyncio.to_thread(self._tail)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise ChildError(f"the {self.name} {how}; the end of {self.log}:\n{tail}")

    async def stop(self, *, grace_s: float) -> None:
        """Send SIGTERM; kill the child if it still runs after `grace_s`."""
        if self._process.returncode is None:
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
            except TimeoutError:
                self._signal(signal.SIGKILL)
                await self._process.wait()
        self._ours.close()

    def _signal(self, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signum)

    def _tail(self) -> str:
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _MAX_TAIL_BYTES))
                lines = file.read(_MAX_TAIL_BYTES).decode(errors="replace").splitlines()
        except OSError as failure:
            return f"  (cannot be read: {failure})"
        return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])
