from __future__ import annotations

import asyncio
import gc
import os
import threading

import pytest
import torch

from minedraft.errors import ConfigError
from minedraft.model.executor import DeviceExecutor


async def test_work_runs_in_order_on_one_thread_that_is_not_the_loops():
    seen = []

    def work(i):
        seen.append((i, threading.get_ident()))
        return i

    async with DeviceExecutor() as device:
        assert await asyncio.gather(*(device.run(work, i) for i in range(20))) == list(range(20))
    assert [i for i, _ in seen] == list(range(20))
    assert len({ident for _, ident in seen}) == 1
    assert seen[0][1] != threading.get_ident()


async def test_an_error_of_the_work_reaches_the_caller_and_the_next_work_runs():
    async with DeviceExecutor() as device:
        with pytest.raises(ZeroDivisionError):
            await device.run(lambda: 1 // 0)
        assert await device.run(lambda: 7) == 7


async def test_cancelling_stops_the_waiting_and_not_the_work():
    started, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work():
        started.set()
        go.wait(5)
        ended.set()

    async with DeviceExecutor() as device:
        task = asyncio.create_task(device.run(work))
        await asyncio.to_thread(started.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not ended.is_set()
        go.set()
        assert await device.run(ended.is_set)


async def test_only_the_device_thread_is_pinned():
    before = os.sched_getaffinity(0)
    core = min(before)
    async with DeviceExecutor(cores=[core]) as device:
        assert await device.run(os.sched_getaffinity, 0) == {core}
        assert await device.run(torch.get_num_threads) == 1
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("options", [{"cores": []}, {"cores": [100_000]}, {"num_threads": 0}])
def test_settings_that_cannot_be_used_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        DeviceExecutor(**options)


async def test_an_error_of_work_that_nobody_waits_for_is_not_logged(caplog):
    async with DeviceExecutor() as device:
        device.submit(lambda: 1 // 0)
        await device.run(gc.collect)
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_it_says_how_long_the_work_in_progress_takes():
    now = [10.0]
    async with DeviceExecutor(clock=lambda: now[0]) as executor:
        assert executor.busy_s == 0.0
        begun, go_on = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            go_on.wait(5)

        future = executor.submit(work)
        await asyncio.to_thread(begun.wait, 5)
        now[0] = 75.0
        assert executor.busy_s == 65.0
        go_on.set()
        await future
        assert executor.busy_s == 0.0


async def test_an_abandoned_one_closes_while_its_work_goes_on():
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(5)
        ended.set()

    async with DeviceExecutor() as executor:
        executor.submit(work)
        await asyncio.to_thread(begun.wait, 5)
        executor.abandon()
    assert executor.busy_s > 0
    assert not ended.is_set()
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 5)


async def test_it_counts_what_is_queued_or_runs():
    go = threading.Event()
    async with DeviceExecutor() as device:
        assert device.num_unfinished == 0
        first, second = device.submit(go.wait), device.submit(lambda: 1 // 0)
        assert device.num_unfinished == 2
        go.set()
        await first
        with pytest.raises(ZeroDivisionError):
            await second
        await asyncio.sleep(0)  # callbacks of a future run in the next turn
        assert device.num_unfinished == 0
