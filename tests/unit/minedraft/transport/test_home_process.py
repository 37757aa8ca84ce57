"""minedraft/transport/home_process.py: real forks of a process with live clients."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests.fake_coordinator import FakeCoordinator, serve

SCRIPT = """
import asyncio, os, signal, sys, time
from minedraft import Client, SyncClient
from minedraft.errors import PreconditionError

address, way = sys.argv[1:]

def refused(call):
    began = time.monotonic()
    try:
        call()
    except PreconditionError as err:
        assert "fork" in str(err), err
        assert time.monotonic() - began < 3
        return
    raise AssertionError("not refused")

def child(client, stream, deltas):
    signal.alarm(15)  # what waits for ever dies of it
    refused(lambda: client.generate("hi", max_tokens=2, timeout_s=5))
    refused(client.status)
    refused(lambda: next(deltas))
    refused(lambda: client.stream("hi").__iter__().__next__())
    client.close()
    client.close()
    refused(lambda: SyncClient(address))
    refused(lambda: asyncio.run(Client.connect(address)))

def sync_parent():
    with SyncClient(address) as client:
        stream = client.stream("hi", max_tokens=50)
        deltas = iter(stream)
        next(deltas)
        if fork(lambda: child(client, stream, deltas)):
            return  # the child leaves by itself, through every exit handler
        deltas.close()
        assert client.generate("hi", max_tokens=2).usage.num_output_tokens == 2

async def async_parent():
    async with await Client.connect(address) as client:
        await client.generate("hi", max_tokens=2)
        async def calls():
            for call in (client.status(), client.generate("hi"), client.abort("x")):
                try:
                    await call
                except PreconditionError as err:
                    assert "fork" in str(err)
                else:
                    raise AssertionError("not refused")
            await client.close()
        if fork(lambda: (signal.alarm(15), asyncio.run(calls()))):
            os._exit(0)  # inside the parent's loop, which is not the child's to end
        await client.generate("hi", max_tokens=2)

def fork(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        return True
    status = os.waitpid(pid, 0)[1]
    assert status == 0, f"the child: {status}"
    return False

if way == "sync":
    sync_parent()
else:
    asyncio.run(async_parent())
"""


@pytest.mark.multiproc
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_fork_is_told_so_and_the_parent_goes_on(way):
    async with serve(FakeCoordinator()) as fake:
        ended = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-W", "ignore", "-c", SCRIPT, fake.address, way],
            capture_output=True,
            text=True,
            timeout=19,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
