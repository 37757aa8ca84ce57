"""services/gateway/connections.py: what a connection may take."""

from __future__ import annotations

import asyncio

import pytest

from minedraft.services.gateway.connections import MAX_HEAD_BYTES
from tests.unit.services.gateway.conftest import running


async def ends(reader):
    """Whether the peer ends the connection."""
    try:
        async with asyncio.timeout(5):
            while await reader.read(2**16):
                pass
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("sent", [b"", b"POST /v1/comp", b"GET / HTTP/1.1\r\nhost: x\r\n"])
async def test_a_client_that_sends_no_whole_head_is_ended(fake, sent):
    async with running(fake, slow_reader_s=0.3) as address:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(sent)
        assert await ends(reader)
        writer.close()


async def test_a_body_that_stops_is_answered(fake):
    async with running(fake, slow_reader_s=0.3) as address:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: 100\r\n\r\n{"
        )
        assert b"400" in await reader.readline()
        writer.close()


async def test_a_head_without_end_is_ended(address):
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (MAX_HEAD_BYTES // 3))
    assert await ends(reader)
    writer.close()


async def test_one_connection_too_many_is_closed_and_the_others_go_on(fake):
    async with running(fake, max_connections=2) as address:
        pairs = [await asyncio.open_connection(*address.split(":")) for _ in range(2)]
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(*address.split(":"))
            assert await ends(reader)
            writer.close()
        reader, writer = pairs[0]
        writer.write(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200" in await reader.readline()
        for _, writer in pairs:
            writer.close()


async def test_an_answer_that_is_not_read_costs_its_connection(fake):
    """A body, not a stream: nothing waits for its reader, and uvicorn would keep it for ever."""
    async with running(fake, slow_reader_s=0.3) as address:
        reader, writer = await asyncio.open_connection(*address.split(":"), limit=2**12)
        for _ in range(600):  # pipelined; more than the socket's buffers take
            writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(10):
            while not reader.exception():  # asyncio tells nobody
                if writer.is_closing():
                    break
                await asyncio.sleep(0.05)
                writer.write(b"\r\n")
        writer.close()
