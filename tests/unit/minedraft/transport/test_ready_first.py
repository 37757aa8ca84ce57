from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minedraft.transport.ready_first import ReadyFirst

LANES = (0, 1, 2, None)
WAIT = 7
"""Most turns that a plan waits for its drafts."""


def takes(order: ReadyFirst[str]) -> list[str]:
    """All that can run now, in order."""
    taken = []
    while (plan := order.take()) is not None:
        taken.append(plan)
    return taken


def test_the_oldest_that_is_ready_runs_next():
    order: ReadyFirst[str] = ReadyFirst()
    first = order.put("a", 0, is_ready=False)
    order.put("b", 1, is_ready=True)
    order.put("c", 2, is_ready=True)
    assert order.take() == "b"
    first.is_ready = True
    assert takes(order) == ["a", "c"]
    assert len(order) == 0


def test_plans_of_a_lane_keep_their_order_and_one_without_a_lane_passes():
    order: ReadyFirst[str] = ReadyFirst()
    first = order.put("a", 0, is_ready=False)
    order.put("b", 0, is_ready=True)
    order.put("closes", None, is_ready=True)
    order.put("waits", None, is_ready=False)
    order.put("closes too", None, is_ready=True)
    assert takes(order) == ["closes", "closes too"]
    first.is_ready = True
    assert takes(order) == ["a", "b"]
    assert len(order) == 1


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(LANES), st.integers(0, WAIT)), max_size=40))
def test_nobody_starves(plans):
    """One plan arrives per turn and one runs: behind its wait, only older ones run before it."""
    order: ReadyFirst[int] = ReadyFirst()
    queued, ready_at, latest, started = [], [], [], {}
    for turn in range(len(plans) * 2 + WAIT + 1):
        if turn < len(plans):
            lane, wait = plans[turn]
            queued.append(order.put(turn, lane, is_ready=False))
            ready_at.append(turn + wait)
            latest.append(turn + WAIT + len(order))
        for number in range(len(queued)):
            queued[number].is_ready |= ready_at[number] <= turn
        taken = order.take()
        if taken is not None:
            started[taken] = turn
    assert sorted(started) == list(range(len(plans)))
    assert all(started[number] <= latest[number] for number in started)


class ReadyFirstMachine(RuleBasedStateMachine):
    """Plans arrive, drafts arrive in any order, the device takes: compared with what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.order: ReadyFirst[int] = ReadyFirst()
        self.queued = {}
        self.lanes: dict[int, int | None] = {}
        self.ready: set[int] = set()
        self.taken: list[int] = []
        self.num_arrived = 0

    @rule(lane=st.sampled_from(LANES), is_ready=st.booleans())
    def arrive(self, lane, is_ready):
        number, self.num_arrived = self.num_arrived, self.num_arrived + 1
        self.queued[number] = self.order.put(number, lane, is_ready=is_ready)
        self.lanes[number] = lane
        if is_ready:
            self.ready.add(number)

    @precondition(lambda self: set(self.queued) - self.ready)
    @rule(data=st.data())
    def drafts_come_or_time_is_up(self, data):
        number = data.draw(st.sampled_from(sorted(set(self.queued) - self.ready)))
        self.queued[number].is_ready = True
        self.ready.add(number)

    @rule()
    def take(self):
        can_run = [
            number
            for number in sorted(self.queued)
            if number in self.ready and not self._before(number)
        ]
        taken = self.order.take()
        assert taken == (can_run[0] if can_run else None)
        if taken is not None:
            del self.queued[taken]
            self.taken.append(taken)

    def _before(self, number: int) -> list[int]:
        """Plans of its lane that arrived before it and wait."""
        lane = self.lanes[number]
        return [n for n in self.queued if n < number and lane is not None and self.lanes[n] == lane]

    @invariant()
    def lanes_keep_their_order(self):
        for lane in LANES[:-1]:
            ran = [n for n in self.taken if self.lanes[n] == lane]
            assert ran == sorted(ran)

    def teardown(self):
        for queued in self.queued.values():
            queued.is_ready = True
        assert takes(self.order) == sorted(self.queued), "all ready: in order of arrival"


TestReadyFirst = ReadyFirstMachine.TestCase
TestReadyFirst.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
