"""What a warm process has in common with an executed one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multiproc, pytest.mark.slow, pytest.mark.timeout(60)]


async def run(*module, said=b"", **options):
    """What `python -m MODULE` wrote, and its exit code."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *module, stdin=PIPE, stdout=PIPE, stderr=PIPE, **options
    )
    out, err = await process.communicate(said)
    return out.decode(), err.decode(), process.returncode


async def test_it_reads_and_writes_and_has_an_exit_code(warm_processes):
    out, err, code = await run("json.tool", said=b'{"a": 1}')
    assert (json.loads(out), err, code) == ({"a": 1}, "", 0)
    out, err, code = await run("json.tool", said=b"?")
    assert (out, code) == ("", 1)
    assert "Expecting value" in err


async def test_it_has_an_environment_of_its_own(warm_processes, tmp_path):
    for name in ("one", "two"):
        env = {**os.environ, "PYTHONUSERBASE": name}
        assert (await run("site", "--user-base", env=env))[0] == f"{name}\n"


async def test_it_is_a_child_of_ours_in_the_session_it_was_given(warm_processes):
    for is_new in (False, True):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "json.tool", stdin=PIPE, start_new_session=is_new
        )
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        assert int(fields[1]) == os.getpid()
        assert (os.getsid(process.pid) == process.pid) == is_new
        assert Path(f"/proc/{process.pid}/comm").read_text() == "tool\n"
        process.send_signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL


async def test_it_has_no_descriptor_but_its_own(warm_processes):
    read, write = os.pipe()
    # It looks itself: from outside, the file of a module just being imported is seen as well.
    out, _, code = await run("tests.open_descriptors", pass_fds=(write,))
    assert (set(json.loads(out)), code) == ({0, 1, 2, write}, 0)
    os.close(write)
    os.close(read)
