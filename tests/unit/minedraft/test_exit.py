from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import atexit, sys
from minedraft.exit import end_quickly
atexit.register(lambda: print("handlers run"))

class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        print("collected")

kept = Cycle()
for _ in range(int(sys.argv[1])):
    end_quickly()
"""


def run(times):
    arguments = [sys.executable, "-c", CODE, str(times)]
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.split("\n")


def test_exit_handlers_run_but_nothing_is_collected():
    assert "collected" in run(0)
    for times in (1, 2):
        assert run(times) == ["handlers run", ""]


LEFT = """
import atexit, sys, threading
from concurrent.futures import ThreadPoolExecutor
from minedraft.exit import leave_behind
atexit.register(lambda: print("handlers run"))
go_on, is_stuck = threading.Event(), sys.argv[1] == "stuck"
ended = ThreadPoolExecutor(1).submit(go_on.wait, None if is_stuck else 0)
if not is_stuck:
    ended.result()
leave_behind(lambda: not ended.done())
print("main ends")
"""


@pytest.mark.parametrize(
    ("how", "said"), [("stuck", ["main ends", ""]), ("done", ["main ends", "handlers run", ""])]
)
def test_a_process_ends_without_the_thread_it_leaves_behind(how, said):
    arguments = [sys.executable, "-c", LEFT, how]
    result = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=15)
    assert result.stdout.split("\n") == said
    assert result.stderr == ""
