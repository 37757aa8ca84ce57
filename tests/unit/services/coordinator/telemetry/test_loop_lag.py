from __future__ import annotations

import pytest

from minedraft.services.coordinator.telemetry.loop_lag import PERIOD_S, measure


class EnoughError(Exception):
    """Ends the loop."""


async def test_the_lag_is_what_a_pause_takes_over_its_length():
    now, late, found = 0.0, [0.0, 0.02, 1.5], []

    async def sleep(seconds):
        nonlocal now
        if not late:
            raise EnoughError
        now += seconds + late.pop(0)

    with pytest.raises(EnoughError):
        await measure(found.append, clock=lambda: now, sleep=sleep)
    assert found == pytest.approx([0.0, 0.02, 1.5])
    assert now == pytest.approx(3 * PERIOD_S + 1.52)
