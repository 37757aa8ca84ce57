from __future__ import annotations

import pytest

from minedraft.errors import (
    DrainingError,
    IncompatibleWorkerError,
    ProtocolError,
    WorkerUnavailableError,
)
from minedraft.services.coordinator.workers.back_off import LONGEST_S, STEADY_S, BackOff

BAD = ProtocolError("nonsense")
AWAY = WorkerUnavailableError("not there")


def pauses(err, num=12, *, first_s=0.2, jitter=1.0, worked_s=0.0) -> list[float]:
    back_off = BackOff(first_s, jitter=lambda: jitter)
    return [back_off.after(err, worked_s) for _ in range(num)]


@pytest.mark.parametrize("err", [BAD, IncompatibleWorkerError("another vocabulary")])
def test_the_pause_doubles_up_to_half_a_minute(err):
    assert pauses(err) == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, *[30.0] * 4])
    assert pauses(err, 3000)[-1] == LONGEST_S


@pytest.mark.parametrize("err", [AWAY, DrainingError("shutting down")])
def test_the_pause_for_who_is_only_away_is_a_small_part_of_how_long_that_has_been(err):
    away_s = 0.0
    for pause_s in pauses(err, 300):
        assert pause_s <= min(0.2 + away_s / 20, LONGEST_S) + 1e-9
        away_s += pause_s
    assert pause_s == LONGEST_S


def test_pauses_of_many_are_not_in_step():
    assert pauses(BAD, jitter=0.0)[0] == pytest.approx(0.1)
    assert pauses(BAD, jitter=0.0)[-1] == LONGEST_S / 2


def test_who_worked_for_long_has_failed_for_the_first_time():
    assert set(pauses(BAD, worked_s=STEADY_S)) == {0.2}
    assert pauses(BAD, worked_s=STEADY_S - 0.1)[-1] == LONGEST_S


def test_a_first_pause_beyond_the_longest_stays():
    assert set(pauses(BAD, first_s=60.0)) == {60.0}


def test_no_first_pause_is_no_pause():
    assert set(pauses(BAD, first_s=0.0)) == {0.0}
