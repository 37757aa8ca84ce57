"""What runs in the coordinator's pod ends at SIGTERM, also as the first process of a container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.deploy.rendered import K8S

pytestmark = pytest.mark.multiproc

COMMANDS = {
    "follower": [str(K8S / "base" / "follow_drafter_choice.py")],
    "coordinator": [str(Path(sys.executable).with_name("minedraft")), "coordinator"],
}
START_S = 10.0
MOMENT_S = 5.0
"""Longest end, on a busy machine; a pod's grace is 90 s."""
# As a container runtime starts it: the first process of a PID namespace of its own.
AS_FIRST = ("unshare", "--pid", "--fork", "--kill-child")

each_process = pytest.mark.parametrize("name", COMMANDS)


@pytest.fixture
def start(tmp_path):
    """Start one without its peers: they are being waited for all the time."""
    (tmp_path / "draft_model").write_text("/models/draft\n")
    own = {
        "MINEDRAFT_ADDRESS": "localhost:1",
        "CHOICE_FILE": str(tmp_path / "draft_model"),
        "TLS_DIRECTORY": str(tmp_path),
        "MINEDRAFT_COORDINATOR_METRICS_LISTEN": "127.0.0.1:0",
        "MINEDRAFT_COORDINATOR_LISTEN": "127.0.0.1:0",
        "MINEDRAFT_COORDINATOR_VERIFIER": "localhost:1",
        "MINEDRAFT_COORDINATOR_DRAFTERS": "localhost:1",
    }
    started = []

    def run(name, *prefix):
        process = subprocess.Popen(
            [*prefix, sys.executable, *COMMANDS[name]],
            env={**os.environ, **own},
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def expects_sigterm(pid):
    """Whether Python catches the signal, or has it blocked for a thread of its own to take."""
    if b"python" not in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]:
        return False  # still unshare, which blocks it for a moment too
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigCgt:", "SigBlk:"))]
    assert len(masks) == 2
    return any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)


def wait_until(is_so):
    """Whether it was so within the time that a start may take."""
    deadline = time.monotonic() + START_S
    while not (so := is_so()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return so


def first_process(unshare):
    """Our name for the process that unshare started."""
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    assert wait_until(lambda: children.read_text().split())
    return int(children.read_text().split()[0])


@each_process
def test_it_ends_at_sigterm(start, name):
    process = start(name)
    assert wait_until(lambda: expects_sigterm(process.pid))
    process.terminate()
    assert process.wait(MOMENT_S) == 0


@each_process
def test_it_ends_at_sigterm_as_the_first_process(start, name):
    may = subprocess.run([*AS_FIRST, "true"], check=False, capture_output=True, text=True)
    if may.returncode != 0:
        pytest.skip(f"no PID namespaces here: {may.stderr.strip()}")
    unshare = start(name, *AS_FIRST)
    pid = first_process(unshare)
    # As long as it does neither, the kernel drops the signal.
    assert wait_until(lambda: expects_sigterm(pid))
    os.kill(pid, signal.SIGTERM)
    assert unshare.wait(MOMENT_S) == 0
