from __future__ import annotations

import asyncio
import threading

import pytest
from typer.testing import CliRunner, Result

from minedraft.cli.main import app
from tests.fake_coordinator import FakeCoordinator, serve


@pytest.fixture
def fake():
    """Serve the double on a thread of its own: commands are synchronous and own the main one."""
    double = FakeCoordinator()
    up, down = threading.Event(), threading.Event()

    async def run() -> None:
        async with serve(double):
            up.set()
            await asyncio.to_thread(down.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert up.wait(10)
    yield double
    down.set()
    thread.join()


@pytest.fixture
def minedraft(fake: FakeCoordinator, monkeypatch):
    """Run a command against the double."""
    monkeypatch.setenv("MINEDRAFT_ADDRESS", fake.address)

    def run(*arguments: str, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(app, list(arguments), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
