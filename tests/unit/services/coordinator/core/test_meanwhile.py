from __future__ import annotations

from minedraft.plans import StepTiming
from minedraft.services.coordinator.core.meanwhile import Meanwhile


def at(start: int, ns: int) -> StepTiming:
    return StepTiming(started_unix_ns=start, total_ns=ns)


def seen(*steps: StepTiming) -> Meanwhile:
    meanwhile = Meanwhile()
    for step in steps:
        meanwhile.note(step)
    return meanwhile


def test_the_share_is_that_of_the_step_in_which_the_other_worked():
    meanwhile = seen(at(100, 50), at(200, 20))
    assert meanwhile.share(at(100, 50)) == 1
    assert meanwhile.share(at(140, 100)) == 0.3
    assert meanwhile.share(at(150, 50)) == 0
    assert meanwhile.share(at(110, 10)) == 1, "longer on both sides"


def test_two_that_work_at_once_are_no_more_than_all_of_it():
    assert seen(at(100, 50), at(100, 50)).share(at(100, 50)) == 1


def test_steps_without_a_time_say_nothing():
    meanwhile = seen(at(0, 50), at(100, 0))
    assert meanwhile.share(at(0, 50)) == 0
    assert seen(at(100, 50)).share(at(100, 0)) == 0


def test_only_the_last_intervals_are_kept():
    meanwhile = seen(*(at(100 * i, 50) for i in range(1, 1000)))
    assert meanwhile.share(at(100, 50)) == 0
    assert meanwhile.share(at(99_900, 50)) == 1
