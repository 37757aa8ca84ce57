"""The guard of tests/conftest.py sees blocking calls of ours, and only those."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from blockbuster import BlockingError

import minedraft

PACKAGE = minedraft.__path__[0]


def block(file_name: str) -> None:
    exec(compile("import time; time.sleep(0.001)", f"{PACKAGE}/{file_name}", "exec"), {})


async def test_a_source_file_that_blocks_the_loop_is_caught():
    with pytest.raises(BlockingError, match=r"time\.sleep"):
        block("services/coordinator/engine.py")


async def test_a_worker_thread_may_block():
    await asyncio.to_thread(block, "model/executor.py")


async def test_a_test_may_block():
    Path(__file__).read_text()


def test_code_without_a_loop_may_block():
    block("cli/main.py")
