from __future__ import annotations

import asyncio
import os
import threading

import pytest

from minedraft.worker import background
from minedraft.worker.background import run_in_background


def niceness():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


async def test_the_work_gives_way_and_its_caller_does_not():
    before = niceness()
    assert await run_in_background(niceness) > before
    assert niceness() == before
    assert await run_in_background(threading.get_ident) != threading.get_ident()


async def test_what_it_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        await run_in_background(divmod, 1, 0)


async def test_work_that_is_given_up_does_not_hold_the_process_while_it_goes_on(monkeypatch):
    left = []
    monkeypatch.setattr(background, "leave_behind", left.append)
    begun, go_on, threads = threading.Event(), threading.Event(), []

    def work():
        threads.append(threading.current_thread())
        begun.set()
        go_on.wait(5)

    working = asyncio.ensure_future(run_in_background(work))
    await asyncio.to_thread(begun.wait, 5)
    assert left == []
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    (is_running,) = left
    assert is_running()
    go_on.set()
    await asyncio.to_thread(threads[0].join, 5)
    assert not is_running()
