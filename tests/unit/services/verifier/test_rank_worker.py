from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from minedraft.services.verifier.rank_process import RankOrder

pytestmark = pytest.mark.multiproc

PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", '''
import os, signal, sys
from minedraft.services.verifier.rank_worker import die_with_parent
die_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
signal.pause()
''', str(os.getpid())])
child.wait()
"""


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("stopped", [False, True])
def test_a_rank_dies_with_its_parent_even_when_stopped(stopped):
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        if stopped:
            os.kill(pid, signal.SIGSTOP)
        parent.kill()
        parent.wait()
        parent.stdout.read()  # ends when the last holder of the pipe is gone: the rank
    while not is_gone(pid):  # whoever adopted it has to notice
        os.sched_yield()


def test_a_rank_whose_parent_is_gone_already_does_not_start():
    order = RankOrder(1, 2, 1 << 22, "s", "m", "float32", "auto", 1, 8, "cpu", None, 1, 1.0)
    module = "minedraft.services.verifier.rank_worker"
    result = subprocess.run(
        [sys.executable, "-m", module, order.to_json()], check=False, capture_output=True
    )
    assert result.returncode == -signal.SIGKILL
    assert result.stdout == b""


def test_a_rank_that_meets_nobody_says_why(tmp_path, monkeypatch, capsys):
    from minedraft.model.parallel import group
    from minedraft.services.verifier import rank_worker

    monkeypatch.setattr(rank_worker, "die_with_parent", lambda _pid: None)
    monkeypatch.setattr(rank_worker.signal, "signal", lambda *_: None)
    monkeypatch.setattr(rank_worker.logs, "configure", lambda *_, **__: None)
    original = group.RankGroup

    def hasty(spec):
        return original(replace(spec, patience_s=0.2))

    monkeypatch.setattr(group, "RankGroup", hasty)
    order = RankOrder(
        1,
        2,
        os.getpid(),
        str(tmp_path / "store"),
        "m",
        "float32",
        "auto",
        1,
        8,
        "cpu",
        None,
        1,
        1.0,
    )
    assert rank_worker.main([order.to_json()]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "up"
    assert said[-1] == "rank 1 of 2: another rank did nothing for 0.2 s"
