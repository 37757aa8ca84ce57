from __future__ import annotations

import os
import threading

import pytest

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
