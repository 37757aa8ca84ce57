"""The pool gives every item to one thread, once, and costs nothing while it waits."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from minedraft.errors import KernelsError
from minedraft.model.kernels.c import compile as build
from minedraft.model.kernels.c.library import Library, load
from minedraft.model.kernels.c.pool import MAX_THREADS, Pool

DRIVER = Path(__file__).with_name("pool_driver.c")
ROOT = Path(__file__).parents[6]


@pytest.fixture(scope="session")
def driven(tmp_path_factory):
    """A library with the driver in it."""
    if build.compiler() is None:
        pytest.skip("no C compiler here")
    isa = load("").isa
    (path,) = build.build(tmp_path_factory.mktemp("driver"), isas=[isa], sources=[DRIVER])
    return Library(path, isa)


class Driver:
    """Calls the driver with arrays of the right size."""

    def __init__(self, library):
        pointer = ctypes.c_void_p
        self._drive = library.raw(
            "drive", ctypes.c_int32, pointer, pointer, pointer, *[ctypes.c_int64] * 3
        )
        self._nested = library.raw(
            "drive_nested", ctypes.c_int32, pointer, pointer, pointer, ctypes.c_int64
        )

    def __call__(self, pool, count, grain=1, calls=1):
        times = np.zeros(max(count, 1), np.int32)
        threads = np.full(max(count, 1), -1, np.int32)
        handle = None if pool is None else pool.handle
        assert self._drive(handle, times.ctypes.data, threads.ctypes.data, count, grain, calls) == 0
        return times[: max(count, 0)], threads[: max(count, 0)]

    def nested(self, pool, count):
        times = np.zeros((count, count), np.int32)
        threads = np.zeros((count, count), np.int32)
        odd = self._nested(pool.handle, times.ctypes.data, threads.ctypes.data, count)
        assert odd == 0
        return times


@pytest.fixture
def drive(driven):
    return Driver(driven)


@pytest.fixture
def pools(driven):
    """Make pools that are closed afterwards."""
    made = []

    def make(threads, spare=()):
        made.append(Pool(driven, threads, spare))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


@pytest.mark.parametrize("threads", range(1, 9))
def test_every_item_is_worked_on_once(drive, pools, threads):
    pool = pools(threads)
    for count in (1, 2, 3, 7, 8, 9, 63, 1000):
        for grain in (1, 2, 5, 16, 1001):
            times, _ = drive(pool, count, grain)
            assert (times == 1).all()


@pytest.mark.parametrize("grain", [1, 7])
def test_a_piece_is_whole_grains_of_one_thread(drive, pools, grain):
    pool = pools(4)
    for _ in range(50):
        _, threads = drive(pool, 70 * grain, grain)
        assert (threads.reshape(70, grain) == threads[::grain, None]).all()


def test_a_late_thread_holds_no_job_up(drive, pools):
    """All share the work as it comes: over many jobs each thread gets some."""
    assert workers(drive, pools(4)) == {0, 1, 2, 3}


def workers(drive, pool, want=4):
    """Threads that have worked, once so many have; a quick one may do a whole job alone."""
    found, deadline = set(), time.monotonic() + 10
    while len(found) < want:
        assert time.monotonic() < deadline
        found |= set(drive(pool, 100_000)[1].tolist())
    return found


def test_less_work_than_threads_wakes_no_more_than_needed(drive, pools):
    pool = pools(8)
    for _ in range(200):
        assert set(drive(pool, 48, grain=16)[1].tolist()) <= {0, 1, 2}


def seen(drive, pool) -> set[int]:
    """Threads that took a piece of one of many calls: a fast one may take all of a call."""
    return {int(thread) for _ in range(500) for thread in drive(pool, 1000)[1]}


def test_spare_threads_sleep_until_they_are_used(drive, pools):
    core = min(os.sched_getaffinity(0))
    pool = pools(2, [core, core])
    assert seen(drive, pool) <= {0, 1}
    pool.use(4)
    deadline = time.monotonic() + 10
    while not seen(drive, pool) & {2, 3}:
        assert time.monotonic() < deadline
    pool.use(1)
    assert set(drive(pool, 100)[1]) == {0}
    for threads in (0, 5):
        with pytest.raises(KernelsError, match=f"threads={threads}: the pool has 1..4"):
            pool.use(threads)


def test_spare_threads_run_on_their_cores_and_the_others_on_the_callers(pools):
    usable = sorted(os.sched_getaffinity(0))
    own, spare = usable[0], usable[-1]
    before = tasks()
    os.sched_setaffinity(0, {own})
    try:
        pools(2, [spare])
        assert os.sched_getaffinity(0) == {own}
    finally:
        os.sched_setaffinity(0, usable)
    new = sorted(tasks() - before)
    assert [os.sched_getaffinity(task) for task in new] == [{own}, {spare}]


def test_a_spare_core_that_does_not_exist_is_refused(pools):
    with pytest.raises(KernelsError, match="cores"):
        pools(1, [4095])


@pytest.mark.parametrize("count", [0, -1])
def test_an_empty_range_calls_nothing(drive, pools, count):
    times, _ = drive(pools(2), count, calls=10)
    assert not times.size


@pytest.mark.parametrize("grain", [0, -5])
def test_a_grain_under_one_is_one(drive, pools, grain):
    times, _ = drive(pools(2), 10, grain)
    assert (times == 1).all()


def test_without_a_pool_the_caller_works_alone(drive):
    times, threads = drive(None, 100)
    assert (times == 1).all()
    assert (threads == 0).all()


@pytest.mark.parametrize("threads", [2, 5])
def test_many_small_calls_lose_nothing(drive, pools, threads):
    times, _ = drive(pools(threads), 7, calls=2000)
    assert (times == 2000).all()


def test_a_split_inside_a_split_runs_on_the_thread_that_asks(drive, pools):
    assert (drive.nested(pools(3), 6) == 1).all()


def test_two_callers_of_one_pool_do_not_disturb_each_other(drive, pools):
    pool, found = pools(3), []

    def call():
        found.extend(drive(pool, 33, calls=20)[0] for _ in range(50))

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 100
    assert all((times == 20).all() for times in found)


def test_two_pools_work_at_once(drive, pools):
    mine, other, found = pools(2), pools(3), []
    caller = threading.Thread(target=lambda: found.append(drive(other, 50, calls=500)[0]))
    caller.start()
    times, _ = drive(mine, 50, calls=500)
    caller.join()
    assert (times == 500).all()
    assert (found[0] == 500).all()


def tasks():
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}


def gone(before):
    """Threads that were joined leave /proc a moment later."""
    deadline = time.monotonic() + 10
    while tasks() - before:
        assert time.monotonic() < deadline


def state_of(task):
    """R: runs; S: sleeps."""
    return Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2].split()[0]


def test_threads_sleep_while_there_is_nothing_to_do(drive, pools):
    before = tasks()
    pool = pools(4)
    ours = tasks() - before
    assert len(ours) == 3
    drive(pool, 100, calls=100)
    deadline = time.monotonic() + 10
    while any(state_of(task) != "S" for task in ours):
        assert time.monotonic() < deadline
    assert workers(drive, pool) == {0, 1, 2, 3}  # and wake again


def test_a_pool_stays_on_the_cores_of_the_thread_that_makes_it(pools):
    core = min(os.sched_getaffinity(0))
    found = []

    def make():
        os.sched_setaffinity(0, {core})
        before = tasks()
        pools(3)
        found.extend(os.sched_getaffinity(task) for task in tasks() - before)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert found == [{core}, {core}]


def test_a_thousand_pools_leave_nothing_behind(drive, pools, driven):
    def once():
        pool = Pool(driven, 3)
        drive(pool, 9)
        pool.close()

    for _ in range(20):
        once()
    before, resident = tasks(), resident_pages()
    for _ in range(1000):
        once()
    gone(before)
    assert resident_pages() - resident < 256  # 1 MiB: a thousandth of it is less than a pool


def resident_pages():
    return int(Path("/proc/self/statm").read_text().split()[1])


def test_a_pool_that_nobody_holds_ends_its_threads(driven):
    before = tasks()
    pool = Pool(driven, 4)
    assert len(tasks() - before) == 3
    del pool
    gone(before)


def test_closing_twice_is_allowed(driven):
    pool = Pool(driven, 2)
    pool.close()
    pool.close()


@pytest.mark.parametrize("threads", [0, -1, MAX_THREADS + 1, 2**40])
def test_a_number_of_threads_out_of_range_is_refused(driven, threads):
    with pytest.raises(KernelsError, match=f"threads={threads}: cannot start them"):
        Pool(driven, threads)


def test_the_most_threads_start(drive, pools):
    before = tasks()
    times, threads = drive(pools(MAX_THREADS), MAX_THREADS)
    assert len(tasks() - before) == MAX_THREADS - 1
    assert (times == 1).all()
    assert ((threads >= 0) & (threads < MAX_THREADS)).all()


def run_alone(driven, code):
    """Run code in a process of its own, with a driver `drive` and a library `library`."""
    prelude = f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        from pathlib import Path
        from minedraft.model.kernels.c.library import Library
        from minedraft.model.kernels.c.pool import Pool
        import importlib.util
        spec = importlib.util.spec_from_file_location("driving", {__file__!r})
        driving = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(driving)
        library = Library(Path({str(driven.path)!r}), {driven.isa!r})
        drive = driving.Driver(library)
    """
    text = textwrap.dedent(prelude) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=15, check=False
    )


def test_a_forked_child_works_alone_and_the_parent_goes_on(driven):
    ran = run_alone(
        driven,
        """
        pool = Pool(library, 3)
        drive(pool, 30)
        child = os.fork()
        if not child:
            times, threads = drive(pool, 30)
            split = driving.workers(drive, Pool(library, 3), 3)  # its own pool has threads
            good = (times == 1).all() and (threads == 0).all() and split == {0, 1, 2}
            pool.close()
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert (drive(pool, 30)[0] == 1).all()
        assert driving.workers(drive, pool, 3) == {0, 1, 2}
        """,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("busy", [False, True], ids=["asleep", "at work"])
def test_a_process_ends_with_its_pools_open(driven, busy):
    ran = run_alone(
        driven,
        f"""
        import threading
        pool = Pool(library, 3)
        drive(pool, 30)
        if {busy}:
            begun = threading.Event()
            def forever():
                begun.set()
                while True:
                    drive(pool, 3000, calls=100)
            threading.Thread(target=forever, daemon=True).start()
            begun.wait()
        print("end")
        """,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "end\n"
