from __future__ import annotations

import asyncio
from pathlib import Path

from structlog.testing import capture_logs

from minedraft.services.coordinator import app
from minedraft.services.coordinator.config import CoordinatorConfig
from tests.tiny_tokenizers import byte_level, write

HERE = "127.0.0.1:0"


async def warnings(config: CoordinatorConfig) -> list[str]:
    """What a coordinator that is stopped at once has warned of."""
    stop = asyncio.Event()
    stop.set()
    with capture_logs() as logs:
        await app.run(config, stop=stop)
    return [entry["event"] for entry in logs if entry["log_level"] == "warning"]


async def test_a_coordinator_without_a_tokenizer_says_so_at_its_start(tmp_path: Path):
    assert "tokenizer.missing" in await warnings(CoordinatorConfig(listen=HERE, drafters=()))
    tokenizer = str(write(byte_level(), tmp_path))
    config = CoordinatorConfig(listen=HERE, drafters=(), tokenizer=tokenizer)
    assert "tokenizer.missing" not in await warnings(config)
