"""A signal ends a worker whose model still loads; a pipe stands for a disk that never answers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

pytestmark = [pytest.mark.multiproc, pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.mark.parametrize(
    ("role", "signum"), [("verifier", signal.SIGTERM), ("drafter", signal.SIGINT)]
)
async def test_a_signal_ends_a_worker_that_loads(role, signum, tmp_path):
    config = tmp_path / "config.json"
    os.mkfifo(config)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", f"minedraft.services.{role}", f"--model={tmp_path}", "--listen=127.0.0.1:0"),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        # Opens when the worker opens it, and gives it nothing.
        with await asyncio.to_thread(config.open, "w"):
            process.send_signal(signum)
            errors = await process.stderr.read()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
    assert b"stopped.loading" in errors
    assert b"Traceback" not in errors
