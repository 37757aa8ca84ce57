from __future__ import annotations

import asyncio
import weakref

from minedraft.services.drafter import app
from minedraft.services.drafter.config import DrafterConfig
from minedraft.transport.fence import Coordinator
from minedraft.transport.worker_client import DrafterConnection
from tests.fake_runner import FakeRunner
from tests.worker_setup import SlowLoad

CALL_S = 5.0


class Source:
    """Models without files, of which it holds none."""

    first_model: weakref.ref[FakeRunner]

    def first(self) -> FakeRunner:
        runner = FakeRunner()
        self.first_model = weakref.ref(runner)
        return runner

    def fingerprint(self, _model: str) -> str:
        return "f"

    def load(self, _model: str) -> FakeRunner:
        return FakeRunner()


async def test_the_first_model_is_let_go_when_another_has_taken_its_place(monkeypatch):
    source = Source()
    monkeypatch.setattr(app, "ModelSource", lambda _config: source)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    config = DrafterConfig("first", listen="127.0.0.1:0")
    async with asyncio.TaskGroup() as group:
        group.create_task(app.run(config, ready=address.set_result, stop=stop))
        connection = DrafterConnection(await address, coordinator=Coordinator("c1"))
        async with connection.session(CALL_S):
            assert source.first_model() is not None
            await connection.load_model("second", "f", CALL_S)
        await connection.close()
        is_held = source.first_model() is not None
        stop.set()
    assert not is_held


async def test_a_stop_does_not_wait_for_the_first_model(monkeypatch):
    model = SlowLoad()
    monkeypatch.setattr(Source, "first", model.load)
    monkeypatch.setattr(app, "ModelSource", lambda _config: Source())
    await model.is_not_waited_for(app.run, DrafterConfig("first", listen="127.0.0.1:0"))
