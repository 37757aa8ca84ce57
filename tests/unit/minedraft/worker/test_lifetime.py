from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from minedraft.worker import lifetime
from minedraft.worker.lifetime import load, serve_worker


class Device:
    busy_s = 2.0
    is_abandoned = False

    def abandon(self) -> None:
        self.is_abandoned = True


@pytest.fixture
def left(monkeypatch):
    """What the process does not wait for."""
    left: list = []
    monkeypatch.setattr(lifetime, "leave_behind", left.append)
    return left


async def give(value):
    return value


@pytest.mark.parametrize("stop", [None, asyncio.Event()])
async def test_a_model_that_loads_is_what_comes_back(stop, left):
    device = Device()
    assert await load(give("model"), device=device, stop=stop) == "model"
    assert not device.is_abandoned
    assert left == []


async def test_a_model_that_cannot_be_loaded_is_said(left):
    async def fail():
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        await load(fail(), device=Device(), stop=asyncio.Event())
    assert left == []


@pytest.mark.parametrize("error", [None, ValueError("too late")])
async def test_a_stop_does_not_wait_for_a_load(error, left, caplog):
    device, stop, begun, cleaned = Device(), asyncio.Event(), asyncio.Event(), []

    async def loading():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(device.is_abandoned)
            if error is not None:
                raise error

    waiting = asyncio.ensure_future(load(loading(), device=device, stop=stop))
    await begun.wait()
    stop.set()
    assert await waiting is None
    assert cleaned == [True]
    (is_running,) = left
    assert is_running()
    device.busy_s = 0.0
    assert not is_running()
    assert "never retrieved" not in caplog.text


async def test_a_worker_says_when_it_is_ready_and_is_dead_when_a_step_hangs(monkeypatch):
    served, addresses, device = [], [], Device()

    async def serve(address, register, *background, is_alive, on_bound, **options):
        served.append((address, register("server"), background))
        on_bound(7, SimpleNamespace(set_ready=lambda *, ready: addresses.append(ready)))
        assert is_alive()
        device.busy_s = lifetime.MAX_STEP_S + 1
        assert not is_alive()

    monkeypatch.setattr(lifetime, "serve", serve)
    servicer = SimpleNamespace(register=lambda _server: "own", sessions=SimpleNamespace(drain=None))
    config = SimpleNamespace(listen="h:0", health_listen=None, grace_s=1.0)
    with capture_logs() as logs:
        await serve_worker(
            servicer,
            give,
            config=config,
            credentials=None,
            device=device,
            facts={"model": "m"},
            ready=addresses.append,
            stop=None,
            add_others=lambda server: (f"others of {server}",),
        )
    assert served == [("h:0", ("own", "others of server"), (give,))]
    assert addresses == [True, "h:7"]
    assert [(line["event"], line["address"], line["model"]) for line in logs] == [
        ("server.ready", "h:7", "m")
    ]
