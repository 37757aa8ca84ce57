from __future__ import annotations

import asyncio
import threading

import pytest

from minedraft.errors import ConfigError
from minedraft.services.verifier import app, ranks
from minedraft.services.verifier.config import VerifierConfig


async def test_a_rank_whose_cores_are_not_there_is_never_started(monkeypatch):
    async def start(order):
        raise AssertionError(f"started {order}")

    monkeypatch.setattr(ranks.RankProcess, "start", start)
    monkeypatch.setattr(ranks, "refuse_ranks", lambda *_: None)
    config = VerifierConfig("m", tp_size=2, cpus="0;9999")
    with pytest.raises(ConfigError, match="cpus='0;9999': rank 1 of 2 cannot use cores"):
        await app.run(config)


async def test_a_stop_does_not_wait_for_the_model(monkeypatch):
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def load_runner(*_args, **_options):
        begun.set()
        go_on.wait(5)
        ended.set()

    monkeypatch.setattr(ranks, "load_runner", load_runner)
    stop = asyncio.Event()
    running = asyncio.ensure_future(app.run(VerifierConfig("m"), stop=stop))
    await asyncio.to_thread(begun.wait, 5)
    stop.set()
    await running
    assert not ended.is_set()
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 5)
