from __future__ import annotations

import subprocess
import sys

from minedraft.cli import heap

MESSAGES = """
from minedraft.cli import heap
from minedraft.worker.memory import resident_bytes
heap.give_back()
before = resident_bytes()
for _ in range(3):  # as messages come: many blocks live at once, with small ones that stay between
    stay, blocks = [], []
    for size in range(1, 40):
        blocks.append(bytes(size * 100_000))
        stay.append(bytes(600))
    del blocks
print((resident_bytes() - before) >> 20)
"""


def test_large_blocks_go_back_to_the_system():
    done = subprocess.run(
        [sys.executable, "-c", MESSAGES], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= 4  # without it some 10


def test_another_c_library_is_left_alone(monkeypatch):
    class Other:
        """Has no mallopt."""

    monkeypatch.setattr(heap.ctypes, "CDLL", lambda _name: Other())
    heap.give_back()
