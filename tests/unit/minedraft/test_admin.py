from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.admin import BatchStatus, Counters, Status
from minedraft.plans import WorkerIdentity
from minedraft.types import Mode

IDLE = Status(
    identity=WorkerIdentity("a", 1, 0, 0, "0"),
    mode=Mode(2, 4, 3),
    batches=(BatchStatus(0), BatchStatus(1)),
    num_waiting=0,
    num_running=0,
    num_blocks=8,
    num_blocks_used=0,
    workers=(),
    counters=Counters(),
    draining=False,
    rss_bytes=1,
)


def test_a_status_is_idle_when_nothing_is_left_to_be_done():
    assert IDLE.is_idle


@pytest.mark.parametrize(
    "change",
    [
        {"num_waiting": 1},
        {"num_running": 1},
        {"batches": (BatchStatus(0), BatchStatus(1, {}, 7))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_request_or_a_step_of_one_that_has_left_keeps_it_from_being_idle(change):
    assert not replace(IDLE, **change).is_idle
