"""A signal ends a worker whose model still loads; a pipe stands for a disk that never answers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

pytestmark = [pytest.mark.multiproc, pytest.mark.slow, pytest.mark.timeout(60)]

SLOW_DISK = """
import os, sys
real, disk, role, model = os.open, *sys.argv[1:]
def open_(path, *args, **options):
    if str(path).endswith("config.json"):
        open(disk).read()  # in the thread that loads, for ever
    return real(path, *args, **options)
os.open = open_
sys.argv[1:] = [role, f"--model={model}", "--listen=127.0.0.1:0"]
from minedraft.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("role", "signum"), [("verifier", signal.SIGTERM), ("drafter", signal.SIGINT)]
)
async def test_a_signal_ends_a_worker_that_loads(role, signum, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    disk = tmp_path / "disk"
    os.mkfifo(disk)
    # The end that writes is held from the start: whoever reads waits, and no open blocks the test.
    held = os.open(disk, os.O_RDWR)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", SLOW_DISK, str(disk), role, str(tmp_path)),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        errors = b""
        while b"model.loading" not in errors:
            line = await process.stderr.readline()
            assert line, errors
            errors += line
        process.send_signal(signum)
        errors += await process.stderr.read()
        assert await process.wait() == 0
    finally:
        os.close(held)
        if process.returncode is None:
            process.kill()
    assert b"load.stopped" in errors
    assert b"Traceback" not in errors
