from __future__ import annotations

import subprocess
import sys

CODE = """
import atexit, sys
from minedraft.worker.exit import end_quickly
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
