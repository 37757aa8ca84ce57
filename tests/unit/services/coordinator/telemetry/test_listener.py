"""The port of the metrics: real sockets, on loopback."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from minedraft.errors import ConfigError, WorkerUnavailableError
from minedraft.services.coordinator.telemetry import listener as module
from minedraft.services.coordinator.telemetry.listener import MetricsListener

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


async def numbers() -> str:
    return "minedraft_up 1\n"


@asynccontextmanager
async def listening(text=numbers):
    listener = MetricsListener("127.0.0.1:0", text)
    run = asyncio.create_task(listener.run())
    try:
        yield listener
    finally:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


async def ask(listener: MetricsListener, request: bytes = GET) -> tuple[bytes, bytes]:
    """First line and body of the answer; both empty if there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    try:
        with suppress(ConnectionError):
            writer.write(request)
            answer = await reader.read()
            head, _, body = answer.partition(b"\r\n\r\n")
            return head.partition(b"\r\n")[0], body
        return b"", b""
    finally:
        writer.close()


async def test_it_answers_with_the_text_of_the_services_loop():
    loop = asyncio.get_running_loop()

    async def text():
        assert asyncio.get_running_loop() is loop
        return "minedraft_up 1\n"

    async with listening(text) as listener:
        assert await ask(listener) == (b"HTTP/1.1 200 OK", b"minedraft_up 1\n")
        assert (await ask(listener, GET.replace(b"/metrics", b"/metrics?x=1")))[1]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\r\n\r\n", b"404"),
        (b"\xff\xfe\r\n\r\n", b"404"),
    ],
)
async def test_other_requests_are_refused_by_status(request_, code):
    async with listening() as listener:
        assert code in (await ask(listener, request_))[0]


async def test_a_service_that_cannot_tell_is_said_to_be_unavailable():
    async def text():
        raise WorkerUnavailableError("not now")

    async with listening(text) as listener:
        assert await ask(listener) == (b"HTTP/1.1 503 Service Unavailable", b"not now\n")


async def test_a_bug_of_ours_costs_one_scrape():
    broken = [True]

    async def text():
        if broken.pop():
            raise ZeroDivisionError
        return "x"

    async with listening(text) as listener:
        assert await ask(listener) == (b"HTTP/1.1 500 Internal Server Error", b"\n")
        broken.append(False)
        assert (await ask(listener))[1] == b"x"


async def test_a_request_over_the_limit_is_closed():
    async with listening() as listener:
        long = b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 2 * module.MAX_REQUEST_BYTES
        assert (await ask(listener, long))[1] == b""
        assert (await ask(listener))[1] == b"minedraft_up 1\n"


async def test_strangers_hold_few_connections_and_not_for_long(monkeypatch):
    monkeypatch.setattr(module, "LIFE_S", 0.5)
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 3)
    async with listening() as listener:
        idle = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(3)]
        assert await ask(listener) == (b"", b"")
        for reader, writer in idle:  # closed by the other end, although we say nothing
            assert await reader.read() == b""
            writer.close()
        assert (await ask(listener))[1] == b"minedraft_up 1\n"


async def test_an_address_that_is_taken_is_refused_by_name():
    async with listening() as listener:
        assert (await ask(listener))[1]
        with pytest.raises(ConfigError, match="metrics_listen"):
            MetricsListener(f"127.0.0.1:{listener.port}", numbers)
    with pytest.raises(ConfigError, match="metrics_listen"):
        MetricsListener("nowhere", numbers)


async def test_it_ends_with_its_task_also_amid_a_connection():
    async with listening() as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", listener.port)
    writer.close()
