from __future__ import annotations

import asyncio

import grpc
import pytest

from minedraft.errors import IncompatibleWorkerError, WorkerUnavailableError
from minedraft.packets.spec import LinkSpec, Transport
from minedraft.transport.channel import server_options
from minedraft.transport.worker_client import DrafterConnection, VerifierConnection
from minedraft.v1 import drafter_pb2_grpc

SPEC = LinkSpec(1, "a", Transport.GRPC, max_rows=4, max_draft_tokens=4)


class Mute(drafter_pb2_grpc.DrafterServicer):
    """Takes calls and never answers."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def FormLink(self, request, context):
        self.called.set()
        await asyncio.Event().wait()


@pytest.fixture
async def mute():
    servicer = Mute()
    server = grpc.aio.server(options=server_options(2**20))
    drafter_pb2_grpc.add_DrafterServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer, f"127.0.0.1:{port}"
    await server.stop(0)


async def test_a_call_on_a_closed_connection_says_that_the_worker_is_not_there(mute):
    connection = DrafterConnection(mute[1])
    await connection.close()
    with pytest.raises(WorkerUnavailableError, match="was closed"):
        await connection.form_link(SPEC)


async def test_a_call_whose_connection_closes_fails_and_is_no_cancelled_task(mute):
    servicer, address = mute
    connection = DrafterConnection(address)
    forming = asyncio.create_task(connection.form_link(SPEC))
    await servicer.called.wait()
    await connection.close()
    with pytest.raises(WorkerUnavailableError, match="was closed"):
        await forming


async def test_a_cancelled_call_stays_cancelled(mute):
    servicer, address = mute
    connection = DrafterConnection(address)
    forming = asyncio.create_task(connection.form_link(SPEC))
    await servicer.called.wait()
    forming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await forming
    await connection.close()


async def test_a_drafter_is_not_a_verifier(mute):
    connection = VerifierConnection(mute[1])
    try:
        with pytest.raises(IncompatibleWorkerError, match=f"{mute[1]} is not a verifier"):
            await connection.get_info(5.0)
    finally:
        await connection.close()


async def test_what_is_no_drafter_is_said():
    server = grpc.aio.server(options=server_options(2**20))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = DrafterConnection(f"127.0.0.1:{port}")
    try:
        with pytest.raises(IncompatibleWorkerError, match=f":{port} is not a drafter"):
            await connection.get_info(5.0)
    finally:
        await connection.close()
        await server.stop(0)
