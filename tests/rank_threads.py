"""Ranks of one model as threads of one process: real gloo between them, no start-up to wait for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from minedraft.model import loader
from minedraft.model.parallel.group import RankGroup, RankSpec


class RankThreads:
    """Runs a function on every rank at once.

    Args:
        directory: Where the ranks meet; one meeting a file.
        timeout_s: Of one exchange.
    """

    def __init__(self, directory, timeout_s=10.0) -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._meetings = 0

    def run(self, size, work):
        """Call `work(group)` on every rank; returns what they returned, rank 0's first."""
        self._meetings += 1
        store = self._directory / f"store-{self._meetings}"

        def one(rank):
            group = RankGroup(RankSpec(rank, size, str(store), timeout_s=self._timeout_s))
            try:
                return work(group)
            finally:
                group.close()  # a rank that failed must not leave the others waiting

        with ThreadPoolExecutor(size) as pool:
            futures = [pool.submit(one, rank) for rank in range(size)]
        return [future.result() for future in futures]


@pytest.fixture
def rank_threads(tmp_path, monkeypatch):
    """RankThreads whose loading is safe: transformers sets process-wide state while it reads."""
    lock = threading.Lock()
    read = loader._read_model

    def read_alone(*args, **options):
        with lock:
            return read(*args, **options)

    monkeypatch.setattr(loader, "_read_model", read_alone)
    return RankThreads(tmp_path)
