"""A gateway in this process, in front of the coordinator double."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import httpx2
import pytest

from minedraft.services.gateway import app
from minedraft.services.gateway.config import GatewayConfig
from tests.fake_coordinator import FakeCoordinator, serve


@asynccontextmanager
async def running(fake, stop=None, key="any", **settings):
    """Run a gateway; yields `host:port` once it knows which model is served."""
    stop = stop or asyncio.Event()
    address = asyncio.get_running_loop().create_future()
    config = GatewayConfig(**{"listen": "127.0.0.1:0", "coordinator": fake.address, **settings})
    async with asyncio.TaskGroup() as group:
        task = group.create_task(app.run(config, ready=address.set_result, stop=stop))
        try:
            found = await address
            async with asyncio.timeout(10):
                while await _status(found, key) == 503:  # noqa: ASYNC110  # it tells nobody
                    await asyncio.sleep(0.02)
            yield found
        finally:
            stop.set()
            await task


async def _status(address, key):
    headers = {"authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=f"http://{address}", headers=headers) as client:
        return (await client.get("/v1/models")).status_code


@pytest.fixture
async def fake():
    async with serve(FakeCoordinator()) as served:
        yield served


@pytest.fixture
async def address(fake):
    async with running(fake) as found:
        yield found


@pytest.fixture
async def http(address):
    async with httpx2.AsyncClient(base_url=f"http://{address}", timeout=10) as client:
        yield client
