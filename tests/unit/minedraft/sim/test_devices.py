from __future__ import annotations

import pytest

from minedraft.sim.devices import Devices, Durations
from minedraft.sim.events import BEGIN_NS, Events


def ends(*works):
    """When works end that begin at given times: (begin, alone, overlapped)."""
    events = Events()
    devices, found = Devices(events), {}

    def begin(name, alone, overlapped):
        def done():
            found[name] = events.now_ns - BEGIN_NS

        devices.compute(Durations(alone, overlapped), done)

    for name, (start, alone, overlapped) in enumerate(works):
        events.after(start, lambda n=name, a=alone, o=overlapped: begin(n, a, o))
    events.run(goes_on=lambda: True)
    return [found[name] for name in range(len(works))]


def test_work_alone_takes_what_it_takes():
    assert ends((0, 100, 150), (200, 40, 80)) == [100, 240]


def test_work_beside_other_work_takes_longer():
    assert ends((0, 100, 150), (0, 100, 150)) == [150, 150]


def test_each_stretch_goes_at_its_own_pace():
    # The second begins at 50, half of the first is left; it ends at 50 + 40 = 90, when
    # 40/200 more of the first are done; the other 0.3 go alone.
    assert ends((0, 100, 200), (50, 20, 40)) == [50 + 40 + 30, 90]


@pytest.mark.parametrize("overlapped", [0, 10])
def test_work_without_a_duration_ends_at_once(overlapped):
    assert ends((5, 0, overlapped)) == [5]
