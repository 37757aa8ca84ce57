from __future__ import annotations

from minedraft.sim.events import BEGIN_NS, Events


def test_events_come_in_the_order_of_their_times_and_of_their_making():
    events, seen = Events(), []
    for name, delay in (("late", 5), ("first", 1), ("second", 1), ("now", 0)):
        events.after(delay, lambda name=name: seen.append((name, events.now_ns - BEGIN_NS)))
    events.run(goes_on=lambda: True)
    assert seen == [("now", 0), ("first", 1), ("second", 1), ("late", 5)]


def test_nothing_happens_in_the_past():
    events, seen = Events(), []
    events.after(7, lambda: events.at(BEGIN_NS, lambda: seen.append(events.now_ns - BEGIN_NS)))
    events.run(goes_on=lambda: True)
    assert seen == [7]


def test_a_run_can_be_looked_at_and_ended():
    events, seen = Events(), []

    def again():
        events.after(1, again)

    again()
    events.run(goes_on=lambda: len(seen) < 3, after_each=lambda: seen.append(events.now_ns))
    assert [ns - BEGIN_NS for ns in seen] == [1, 2, 3]
