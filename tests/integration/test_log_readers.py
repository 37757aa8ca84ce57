"""Three processes whose log nobody reads, or that cannot be written, from the start or later.

They serve, go through the loss of a drafter, and end when told to, as with a log that works.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks import fleet
from benchmarks.fleet import Child, Fleet, is_up, until
from minedraft.client import Client

pytestmark = [
    pytest.mark.multiproc,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("warm_processes"),
]


class Logs:
    """Every log of a fleet is one file: a FIFO whose reader we are, or a device that is full."""

    def __init__(self, directory: Path, how: str) -> None:
        self.path = Path("/dev/full") if how == "disk full" else directory / "log"
        self._fd = -1
        if how == "disk full":
            return
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, 4096)

    def stop_reading(self) -> None:
        with suppress(BlockingIOError):
            while True:
                os.write(self._fd, b"." * 512)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@pytest.mark.parametrize("how", ["reader stopped", "reader gone", "disk full"])
async def test_a_fleet_lives_without_its_log(how, target_dir, plain_greedy, tmp_path, monkeypatch):
    logs = Logs(tmp_path, how)
    real = Child.start

    async def start(name, arguments, *, log, env):
        return await real(name, arguments, log=logs.path, env=env)

    monkeypatch.setattr(fleet.Child, "start", start)
    if how == "reader stopped":
        logs.stop_reading()  # before the first line
    workers = ("--num-blocks=64", "--block-size=8", "--grace-s=0.2")
    services = Fleet(
        target_dir, target_dir, tmp_path, workers=workers, coordinator=("--reconnect-s=0.05",)
    )
    try:
        async with services, await Client.connect(services.address) as client:
            await until(client, is_up)
            if how == "reader gone":
                logs.close()
                logs.path = Path(os.devnull)  # the next one could not open a FIFO without a reader
            drafter = services.services["drafter"]
            stream = client.stream([5, 6, 7], max_tokens=60, temperature=0, ignore_eos=True)
            asking = asyncio.create_task(stream.collect())
            await drafter.kill()
            answer = await asking
            assert answer.token_ids == plain_greedy([5, 6, 7], 60)
            await drafter.start()
            await until(client, is_up)  # the verifier has formed another link
            status = await client.status()
            coordinator = services.services["coordinator"]
            pid = coordinator.pid
            await coordinator.stop()
            assert not Path(f"/proc/{pid}").exists()
    finally:
        logs.close()
    assert bool(status.num_log_lines_dropped) == (how != "reader stopped")
