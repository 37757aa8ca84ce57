from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from minedraft.link.outbox import Outbox

BEAT = np.array([-1], dtype=np.int32)


def words(value):
    return np.array([value], dtype=np.int32)


def test_packets_leave_in_order():
    outbox = Outbox(BEAT, heartbeat_s=5)
    for value in range(3):
        outbox.put(words(value))

    assert [int(outbox.next()[0]) for _ in range(3)] == [0, 1, 2]


def test_an_idle_outbox_gives_a_heartbeat():
    assert Outbox(BEAT, heartbeat_s=0.001).next() is BEAT


def test_a_full_outbox_drops_the_oldest():
    outbox = Outbox(BEAT, heartbeat_s=5, capacity=2)
    for value in range(4):
        outbox.put(words(value))

    assert [int(outbox.next()[0]) for _ in range(2)] == [2, 3]


def test_closing_wakes_the_thread_that_waits_and_drops_the_rest():
    outbox = Outbox(BEAT, heartbeat_s=10)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(outbox.next)
        outbox.close()
        assert waiting.result(timeout=2) is None

    outbox.put(words(1))
    assert outbox.next() is None


def test_what_was_queued_at_the_close_is_dropped():
    outbox = Outbox(BEAT, heartbeat_s=5)
    outbox.put(words(1))
    outbox.close()

    assert outbox.next() is None
