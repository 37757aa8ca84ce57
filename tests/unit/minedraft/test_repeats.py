from __future__ import annotations

from minedraft.repeats import MAX_CAUSES, PERIOD_S, Repeats


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_cause_is_said_once_a_minute_with_how_often_it_was_not():
    clock = Clock()
    repeats = Repeats(clock=clock)
    said = []
    for _ in range(int(3 * PERIOD_S)):
        said.append(repeats.take("cause"))
        clock.now_s += 1.0
    assert [count for count in said if count is not None] == [0, 59, 59]


def test_another_cause_is_said_at_once():
    repeats = Repeats(clock=Clock())
    assert repeats.take("one") == 0
    assert repeats.take("two") == 0
    assert repeats.take("one") is None


def test_causes_that_a_peer_makes_up_are_one_beyond_a_number():
    repeats = Repeats(clock=Clock())
    said = [repeats.take(f"cause {i}") for i in range(1000)]
    assert said == [*[0] * (MAX_CAUSES + 1), *[None] * (999 - MAX_CAUSES)]
    assert len(repeats._said) == MAX_CAUSES + 1


def test_causes_of_long_ago_make_room_for_new_ones():
    clock = Clock()
    repeats = Repeats(clock=clock)
    for i in range(100):
        repeats.take(f"old {i}")
    clock.now_s += PERIOD_S
    assert [repeats.take(f"new {i}") for i in range(MAX_CAUSES)] == [0] * MAX_CAUSES
    assert len(repeats._said) <= MAX_CAUSES + 1
