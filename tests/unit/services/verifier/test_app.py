from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.services.verifier import app, ranks
from minedraft.services.verifier.config import VerifierConfig
from tests.worker_setup import SlowLoad


async def test_a_rank_whose_cores_are_not_there_is_never_started(monkeypatch):
    async def start(order):
        raise AssertionError(f"started {order}")

    monkeypatch.setattr(ranks.RankProcess, "start", start)
    monkeypatch.setattr(ranks, "refuse_ranks", lambda *_: None)
    config = VerifierConfig("m", tp_size=2, cpus="0;9999")
    with pytest.raises(ConfigError, match="cpus='0;9999': rank 1 of 2 cannot use cores"):
        await app.run(config)


async def test_a_stop_does_not_wait_for_the_model(monkeypatch):
    model = SlowLoad()
    monkeypatch.setattr(ranks, "load_runner", model.load)
    await model.is_not_waited_for(app.run, VerifierConfig("m"))
