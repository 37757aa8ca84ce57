from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from minedraft.link.lost import LostLatch


def test_the_report_names_the_epoch_and_the_reason():
    reports = []
    latch = LostLatch(7, lambda epoch, reason: reports.append((epoch, reason)))

    assert latch.is_open
    assert latch.shut()
    latch.report("gone")

    assert not latch.is_open
    assert reports == [(7, "gone")]


def test_of_many_threads_exactly_one_shuts_it():
    latch = LostLatch(1, lambda *_: None)
    barrier = Barrier(8)

    def race(_):
        barrier.wait(5)
        return latch.shut()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(race, range(8))) == 1
