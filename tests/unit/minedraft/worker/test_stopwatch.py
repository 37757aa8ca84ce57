from __future__ import annotations

import pytest

from minedraft.worker import stopwatch as module
from minedraft.worker.stopwatch import Stopwatch


class Clock:
    """All three clocks; the thread works half of the time."""

    def __init__(self) -> None:
        self.now = 1000

    def perf_counter_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now + 10**6

    def thread_time_ns(self) -> int:
        return self.now // 2


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def step(watch: Stopwatch, clock: Clock, *, start: int, end: int, plan: int, drafts=None):
    clock.now = start
    watch.start()
    clock.now = end
    return watch.stop(plan_ns=plan, drafts_ns=drafts)


def test_a_step_is_timed_by_wall_and_by_cpu(clock):
    timing = step(Stopwatch(), clock, start=1000, end=1400, plan=900)
    assert (timing.started_unix_ns, timing.total_ns, timing.cpu_ns) == (1_001_000, 400, 200)


def test_parts_add_up_and_do_not_leak_into_the_next_step(clock):
    watch = Stopwatch()
    watch.start()
    for part, length in (("forward", 30), ("sample", 5), ("forward", 40)):
        with watch.measure(part):
            clock.now += length
    timing = watch.stop(plan_ns=0, drafts_ns=None)
    assert (timing.forward_ns, timing.sample_ns, timing.total_ns) == (70, 5, 75)
    assert step(watch, clock, start=2000, end=2010, plan=0).forward_ns == 0


def test_a_part_that_fails_is_timed_all_the_same(clock):
    watch = Stopwatch()
    watch.start()

    def fail() -> None:
        with watch.measure("forward"):
            clock.now += 30
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert watch.stop(plan_ns=0, drafts_ns=None).forward_ns == 30


def test_before_the_first_step_nothing_was_idle(clock):
    timing = step(Stopwatch(), clock, start=1000, end=1100, plan=200)
    assert (timing.idle_ns, timing.wait_ns, timing.bubble_ns) == (0, 0, 0)


@pytest.mark.parametrize(
    ("plan", "drafts", "idle", "wait", "bubble"),
    [
        (1050, None, 200, 0, 200),  # planned while the last step ran: idle for no reason
        (1250, None, 200, 0, 50),  # planned late
        (1050, 1260, 200, 160, 40),  # drafts came while the device was free
        (1050, 1090, 200, 0, 200),  # drafts came while the last step ran
        (1250, 1260, 200, 10, 40),  # both late
        (1300, None, 200, 0, 0),  # began as soon as it was planned
    ],
)
def test_idle_time_is_waiting_for_drafts_or_for_a_plan_or_a_bubble(
    clock, plan, drafts, idle, wait, bubble
):
    watch = Stopwatch()
    step(watch, clock, start=1000, end=1100, plan=900)
    timing = step(watch, clock, start=1300, end=1400, plan=plan, drafts=drafts)
    assert (timing.idle_ns, timing.wait_ns, timing.bubble_ns) == (idle, wait, bubble)
    assert timing.wait_ns + timing.bubble_ns <= timing.idle_ns
