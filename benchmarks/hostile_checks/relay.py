"""A TCP relay that can fall silent: no FIN, no RST, bytes are swallowed, as a firewall does it."""

from __future__ import annotations

import asyncio
from typing import cast

_CHUNK = 65536


class Relay:
    """Listens at once; where to is said before the first connection."""

    def __init__(self) -> None:
        self.upstream = ""
        self.address = ""
        self._is_silent = False
        self._dead: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def go_silent(self) -> None:
        """Swallow from now on what comes on any connection, new ones included."""
        self._is_silent = True
        self._dead |= self._tasks

    def heal(self) -> None:
        """Let new connections through. Those that were swallowed stay dead."""
        self._is_silent = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast(
            "asyncio.Task[None]", asyncio.current_task()
        )  # a callback of a server is a task
        self._tasks.add(task)
        if self._is_silent:
            self._dead.add(task)
        far = None
        try:
            host, _, port = self.upstream.rpartition(":")
            far_reader, far = await asyncio.open_connection(host, int(port))
            await asyncio.gather(
                self._pump(reader, far, task), self._pump(far_reader, writer, task)
            )
        except OSError:
            pass
        finally:
            self._tasks.discard(task)
            for each in (writer, far):
                if each is not None:
                    each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> None:
        while data := await reader.read(_CHUNK):
            if task in self._dead:
                await asyncio.Event().wait()  # until the relay is closed
            writer.write(data)
            await writer.drain()
        if task in self._dead:
            await asyncio.Event().wait()
        raise ConnectionResetError
