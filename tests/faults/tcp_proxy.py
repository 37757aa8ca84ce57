"""A TCP proxy in front of one service that can cut, garble, halve, slow or swallow."""

from __future__ import annotations

import asyncio
import random

_CHUNK = 4096
_SLOW_PIECE = 48
"""Bytes a turn of a slow peer: a plan or an answer takes several."""


class Proxy:
    """Forwards both ways; faults apply to what the service sends.

    `garble` and `halve` wait for the next bytes of the service, whenever they come.
    """

    def __init__(self) -> None:
        self.upstream = ""
        self.address = ""
        self.is_slow = False
        self.swallows: tuple[str, ...] = ()
        """Of `to_service` and `to_client`: what is said there is read and goes nowhere."""
        self.num_spoiled = 0
        """Chunks that `garble` or `halve` got."""
        self._order = ""
        self._silent: set[asyncio.Task[None]] = set()
        self._pairs: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self.address

    async def close(self) -> None:
        self._server.close()
        self.cut()
        for task in list(self._pairs):
            task.cancel()
        if self._pairs:
            await asyncio.wait(list(self._pairs))

    def cut(self) -> None:
        """Reset every connection; new ones work."""
        for writers in self._pairs.values():
            for writer in writers:
                writer.transport.abort()

    def garble(self) -> None:
        """Bytes that are no HTTP/2 frame take the place of what the service says next."""
        self._order = "garble"

    def halve(self) -> None:
        """Half of what the service says next arrives, then the connection is reset."""
        self._order = "halve"

    def silence(self) -> None:
        """Every connection there is stays open and brings nothing any more; new ones work."""
        self._silent = set(self._pairs)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._pairs[task] = (writer,)
        try:
            host, _, port = self.upstream.rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            self._pairs[task] = (writer, far_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(task, reader, far_writer, spoils=False))
                group.create_task(self._pump(task, far_reader, writer, spoils=True))
        except* OSError:
            pass
        finally:
            for each in self._pairs.pop(task):
                each.transport.abort()

    async def _pump(self, pair, reader, writer, *, spoils: bool) -> None:
        while data := await reader.read(_CHUNK):
            if pair in self._silent or ("to_client" if spoils else "to_service") in self.swallows:
                continue
            order, self._order = (self._order, "") if spoils else ("", self._order)
            if order:
                self.num_spoiled += 1
            if order == "garble":
                data = b"\xff" + random.Random(len(data)).randbytes(max(len(data), 64))
            elif order == "halve":
                writer.write(data[: len(data) // 2])
                await writer.drain()
                break
            for piece in _pieces(data, _SLOW_PIECE if self.is_slow else len(data)):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        if pair in self._silent or self.swallows:
            await asyncio.Event().wait()  # not even an end is heard of; `close` cancels it
        raise ConnectionResetError  # either end is gone: so is the other


def _pieces(data: bytes, size: int):
    return (data[i : i + size] for i in range(0, len(data), size))
