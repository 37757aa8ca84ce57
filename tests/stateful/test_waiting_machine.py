"""Priorities that age: the queue equals two plain sorts and a count, and starves nobody."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.core.waiting import WaitingQueue
from minedraft.types import RequestId, RowParams

PRIORITY = st.sampled_from([-100, -1, 0, 0, 0, 1, 100])


@dataclass
class Wait:
    """One stay in the queue, counted in admissions since it began."""

    request: Request
    num_admitted: int = 0
    num_older_admitted: int = 0
    """Of them, of requests that arrived before this one: what it waits for in order of arrival."""


class WaitingMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize()
    def start(self):
        self.queue = WaitingQueue()
        self.waits: dict[int, Wait] = {}
        """By arrival."""
        self.running: list[Request] = []
        self.aged: set[int] = set()
        self.num_arrived = self.num_overtaken = 0

    @rule(priority=PRIORITY)
    def arrives(self, priority):
        number = self.num_arrived
        request = Request(RequestId(f"r{number}"), (1,), RowParams(), 1, priority=priority)
        request.arrive(number)
        self.num_arrived += 1
        self.joins(request)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 99))
    def is_preempted(self, index):
        self.joins(self.running.pop(index % len(self.running)))

    def joins(self, request):
        self.queue.add(request)
        self.waits[request.arrival] = Wait(request)

    @precondition(lambda self: self.waits)
    @rule(index=st.integers(0, 99))
    def is_aborted(self, index):
        number = sorted(self.waits)[index % len(self.waits)]
        self.queue.remove(self.waits.pop(number).request)

    @precondition(lambda self: self.waits)
    @rule()
    def is_admitted(self):
        oldest = min(self.waits)
        first = min(self.waits, key=self.rank)
        wanted = oldest if self.num_overtaken == 3 else first
        self.num_overtaken = 0 if wanted == oldest else self.num_overtaken + 1
        if wanted != first:
            self.aged.add(wanted)
        assert self.queue.next.arrival == wanted
        request = self.queue.take()
        assert request is self.waits.pop(wanted).request
        self.running.append(request)
        for number, wait in self.waits.items():
            wait.num_admitted += 1
            wait.num_older_admitted += wanted < number

    def rank(self, number):
        if number in self.aged:
            return (0, 0, number)  # its priority counts no more
        return (1, self.waits[number].request.priority, number)

    @invariant()
    def nobody_waits_more_than_four_times_as_long_as_in_order_of_arrival(self):
        for wait in self.waits.values():
            assert wait.num_admitted < 4 * (wait.num_older_admitted + 1)

    @invariant()
    def the_queue_is_in_order_of_arrival(self):
        assert [request.arrival for request in self.queue] == sorted(self.waits)
        assert len(self.queue) == len(self.waits)


TestWaiting = WaitingMachine.TestCase
TestWaiting.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
