"""The helpers beside the coordinator end at SIGTERM, also as the first process of a container."""

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

SCRIPTS = (
    K8S / "base" / "follow_drafter_choice.py",
    K8S / "components" / "podmonitor" / "status_exporter.py",
)
START_S = 10.0
MOMENT_S = 2.0
"""Longest end, on a busy machine; a pod's grace is 90 s."""
# As a container runtime starts it: the first process of a PID namespace of its own.
AS_FIRST = ("unshare", "--pid", "--fork", "--kill-child")

each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


@pytest.fixture
def start(tmp_path):
    """Start a helper without a coordinator: one is being waited for all the time."""
    (tmp_path / "draft_model").write_text("/models/draft\n")
    own = {
        "MINEDRAFT_ADDRESS": "localhost:1",
        "CHOICE_FILE": str(tmp_path / "draft_model"),
        "TLS_DIRECTORY": str(tmp_path),
        "EXPORTER_LISTEN": "127.0.0.1:0",
    }
    started = []

    def run(script, *prefix):
        process = subprocess.Popen(
            [*prefix, sys.executable, str(script)],
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
    """Whether the main thread catches the signal, or has it blocked for another one to take."""
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


@each_script
def test_a_helper_ends_at_sigterm(start, script):
    process = start(script)
    assert wait_until(lambda: expects_sigterm(process.pid))
    process.terminate()
    assert process.wait(MOMENT_S) == 0


@each_script
def test_a_helper_ends_at_sigterm_as_the_first_process(start, script):
    may = subprocess.run([*AS_FIRST, "true"], check=False, capture_output=True, text=True)
    if may.returncode != 0:
        pytest.skip(f"no PID namespaces here: {may.stderr.strip()}")
    unshare = start(script, *AS_FIRST)
    pid = first_process(unshare)
    # As long as it does neither, the kernel drops the signal.
    assert wait_until(lambda: expects_sigterm(pid))
    os.kill(pid, signal.SIGTERM)
    assert unshare.wait(MOMENT_S) == 0
