"""Answers GET /metrics in plaintext, on a port, a thread and an event loop of its own.

Strangers who connect take none of the service's time, except that a scrape copies figures there.
Refuses more than a few connections at a time; each has seconds to live, and one answer.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from minedraft.errors import ConfigError, MineDraftError
from minedraft.security.address import check_free, check_listen
from minedraft.services.coordinator.telemetry.exposition import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

log = structlog.get_logger(__name__)

MAX_CONNECTIONS: Final = 16
MAX_REQUEST_BYTES: Final = 8192
LIFE_S: Final = 10.0
"""Longest life of a connection, its answer included."""
_STOP_S: Final = 2.0
"""Longest wait for the thread's end."""
_SETTLE_S: Final = 0.05
"""Time at the end for connections that are being accepted to become tasks, which can be ended."""
_END: Final = b"\r\n\r\n"


class MetricsListener:
    """See the module docstring. It is bound at once, and answers while `run` runs.

    Args:
        address: `host:port`; port 0: a free one.
        text: Makes the answer, on the service's event loop.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def __init__(self, address: str, text: Callable[[], Coroutine[Any, Any, str]]) -> None:
        check_listen("metrics_listen", address)
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host.strip("[]"), int(port)), family=family)
        except OSError as err:
            check_free("metrics_listen", address)  # says why
            raise ConfigError(f"metrics_listen={address!r}: cannot bind: {err}") from None
        self._text = text
        self._num_open = 0
        self.port: Final = int(self._socket.getsockname()[1])

    async def run(self) -> None:
        """Answer until cancelled."""
        service = asyncio.get_running_loop()
        stop = asyncio.Event()
        own = asyncio.new_event_loop()
        executor = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        work = service.run_in_executor(executor, self._work, own, service, stop)
        log.info("metrics.ready", port=self.port)
        try:
            await asyncio.shield(work)
        finally:
            with suppress(RuntimeError):  # it has ended by itself
                own.call_soon_threadsafe(stop.set)
            await asyncio.wait((work,), timeout=_STOP_S)
            executor.shutdown(wait=False)
            self._socket.close()

    def _work(
        self,
        own: asyncio.AbstractEventLoop,
        service: asyncio.AbstractEventLoop,
        stop: asyncio.Event,
    ) -> None:
        with asyncio.Runner(loop_factory=lambda: own) as runner:
            runner.run(self._serve(service, stop))

    async def _serve(self, service: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        tasks: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:

            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = group.create_task(self._answer(reader, writer, service))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

            server = await asyncio.start_server(
                connected, sock=self._socket, limit=MAX_REQUEST_BYTES
            )
            await stop.wait()
            server.close()
            await asyncio.sleep(_SETTLE_S)
            for task in tasks:
                task.cancel()
        await asyncio.sleep(0)  # connections that were closed just now are put away

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        service: asyncio.AbstractEventLoop,
    ) -> None:
        self._num_open += 1
        try:
            if self._num_open > MAX_CONNECTIONS:
                return
            async with asyncio.timeout(LIFE_S):
                head = await reader.readuntil(_END)
                writer.write(await self._response(head, service))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a stranger's business
        finally:
            self._num_open -= 1
            writer.close()

    async def _response(self, head: bytes, service: asyncio.AbstractEventLoop) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path != b"/metrics":
            return _message(404, "Not Found", "no such page; want /metrics\n")
        if method != b"GET":
            return _message(405, "Method Not Allowed", "want GET\n")
        try:
            asked = asyncio.run_coroutine_threadsafe(self._text(), service)
            return _message(200, "OK", await asyncio.wrap_future(asked))
        except MineDraftError as err:
            return _message(503, "Service Unavailable", f"{err}\n")
        except Exception:  # it costs one scrape, not the service
            log.warning("metrics.failed", exc_info=True)
            return _message(500, "Internal Server Error", "\n")


def _message(code: int, reason: str, text: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {code} {reason}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
