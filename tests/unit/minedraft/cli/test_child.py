from __future__ import annotations

import asyncio
import os
import signal

import pytest

from minedraft.cli.child import Child, ChildError

PROGRAM = """
import signal, socket, sys, time
fd = int(next(a for a in sys.argv if a.startswith("--parent-fd=")).partition("=")[2])
parent = socket.socket(fileno=fd)
mode = sys.argv[1]
print("a line in the log", flush=True)
if mode == "deaf":
    sys.exit(4)
told = sys.stdin.read()
if mode == "repeat":
    print(sys.argv[2:], told, flush=True)
if mode == "die":
    print("fatal: no model", file=sys.stderr)
    sys.exit(3)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
parent.send(b"127.0.0.1:1\\n")
if mode == "orphan":
    parent.recv(1)  # our end is gone
    sys.exit(0)
signal.pause()
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a child that runs PROGRAM in place of the command line."""
    package = tmp_path / "minedraft" / "cli"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").touch()
    (package / "main.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)  # `python -m` looks here first

    async def run(mode: str, **settings: object) -> Child:
        return await Child.start(
            "thing",
            [mode],
            settings=settings,
            log=tmp_path / "thing.log",
            env={"PYTHONPATH": str(tmp_path)},
        )

    return run


async def test_a_child_tells_its_address_and_ends_when_asked(start):
    child = await start("obey")
    assert await child.ready() == "127.0.0.1:1"
    await child.stop(grace_s=10)
    assert child._process.returncode == -signal.SIGTERM


async def test_a_child_that_dies_early_shows_the_end_of_its_log(start):
    child = await start("die")
    with pytest.raises(ChildError, match="the thing ended with exit code 3") as caught:
        await child.ready()
    assert "fatal: no model" in str(caught.value)
    assert "a line in the log" in str(caught.value)
    await child.stop(grace_s=1)


async def test_a_child_that_dies_later_is_noticed(start):
    child = await start("obey")
    await child.ready()
    os.kill(child._process.pid, signal.SIGKILL)
    with pytest.raises(ChildError, match="was killed by signal 9"):
        await child.died()
    await child.stop(grace_s=1)


async def test_a_child_that_does_not_listen_is_killed(start):
    child = await start("stubborn")
    await child.ready()
    await child.stop(grace_s=0.1)
    assert child._process.returncode == -signal.SIGKILL


async def test_a_child_sees_the_end_of_its_parent(start):
    child = await start("orphan")
    await child.ready()
    child._ours.close()  # as the kernel does for a parent that was killed
    async with asyncio.timeout(10):
        assert await child._process.wait() == 0


async def test_settings_travel_as_one_value_and_are_no_arguments(start, tmp_path):
    child = await start("repeat", model="/a b", num_blocks=3, insecure=True)
    await child.ready()
    await child.stop(grace_s=10)
    said = (tmp_path / "thing.log").read_text().splitlines()[1]
    assert said.startswith("['--parent-fd=")
    assert said.endswith("""'--settings=-'] {"model": "/a b", "num_blocks": 3, "insecure": true}""")


async def test_a_child_that_ends_before_it_is_told_its_settings_shows_its_log(start):
    child = await start("deaf", model="x" * 2**20)
    with pytest.raises(ChildError, match="exit code 4"):
        await child.ready()
    await child.stop(grace_s=1)
