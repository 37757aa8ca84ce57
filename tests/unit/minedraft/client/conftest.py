from __future__ import annotations

import pytest

from minedraft.client import NO_RETRIES, Client
from tests.fake_coordinator import FakeCoordinator, serve


@pytest.fixture
async def fake():
    async with serve(FakeCoordinator()) as served:
        yield served


@pytest.fixture
async def client(fake: FakeCoordinator):
    async with await Client.connect(fake.address, retry=NO_RETRIES) as connected:
        yield connected
