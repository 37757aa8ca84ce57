"""Shares under any order of reshapes, arrivals, ends and sync points.

The model knows which members have a step in flight, and that they never move; how many each batch
may have; and that all shares are reached once every batch has been at its sync point.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minedraft.services.coordinator.core.batch_manager import BatchManager
from minedraft.types import RequestId

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 4))


class SharesMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(shape=SHAPES)
    def start(self, shape):
        self.manager = BatchManager(*shape)
        self.stepping: dict[int, set[str]] = {}
        """By batch with a step in flight: its members that the step has rows of."""
        self.count = 0
        self.synced: set[int] = set()
        """Batches that were at their sync point since the last reshape."""

    def members(self, batch):
        return set(self.manager.members(batch))

    def at_sync_point(self, batch):
        """What the table does then."""
        before = {b: self.members(b) for b in self.manager.numbers}
        moved = self.manager.rebalance(batch)
        assert {name for name, _ in moved} <= before[batch], "a member of another batch moved"
        for to in {to for _, to in moved}:
            assert to < self.manager.num_batches, "into a closing batch"
            assert self.manager.size(to) <= self.manager.max_batch_size
        for name in self.manager.surplus(batch):
            assert name in before[batch]
            self.manager.remove(name)
        self.synced.add(batch)

    @rule()
    def plan(self):
        """As the planner does it: arrivals, sync points, then a step of every idle batch."""
        idle = [b for b in self.manager.numbers if b not in self.stepping]
        for batch in idle:
            self.at_sync_point(batch)
        for batch in idle:
            if batch < self.manager.num_batches and self.manager.size(batch):
                self.manager.start(batch)
                self.stepping[batch] = self.members(batch)

    @rule(drafting=st.integers(0, 3))
    def arrive(self, drafting):
        total = sum(self.manager.size(b) for b in self.manager.numbers)
        batch = self.manager.choose(drafting % self.manager.num_batches)
        if batch is None:
            return
        assert total < self.manager.num_slots
        assert batch < self.manager.num_batches
        self.manager.add(RequestId(f"r{self.count}"), batch)
        self.count += 1

    @precondition(lambda self: self.stepping)
    @rule(data=st.data())
    def commit(self, data):
        del self.stepping[data.draw(st.sampled_from(sorted(self.stepping)))]

    @rule(data=st.data())
    def end(self, data):
        names = [name for b in self.manager.numbers for name in self.manager.members(b)]
        if names:
            name = data.draw(st.sampled_from(names))
            self.manager.remove(name)
            for stepping in self.stepping.values():
                stepping.discard(name)

    @rule(shape=SHAPES, num_spare=st.integers(0, 2))
    def reshape(self, shape, num_spare):
        num_batches, max_batch_size = shape
        num_slots = max(num_batches * max_batch_size - num_spare, 1)
        self.manager.reshape(num_batches, max_batch_size, num_slots=num_slots)
        self.synced = set()

    @invariant()
    def no_member_moves_in_flight(self):
        for batch, stepping in self.stepping.items():
            assert stepping <= self.members(batch)

    @invariant()
    def caps_hold(self):
        manager = self.manager
        manager.check()
        for batch in self.synced & {*manager.numbers}:
            is_open = batch < manager.num_batches
            assert manager.size(batch) <= (manager.max_batch_size if is_open else 0)

    def teardown(self):
        """Everything reaches its sync point: every batch has its share, no slot is exceeded."""
        if not hasattr(self, "manager"):
            return
        self.stepping.clear()
        for _ in range(2):  # who gives members away may have had its own sync point before
            self.plan()
            self.stepping.clear()
        manager = self.manager
        sizes = [manager.size(b) for b in range(manager.num_batches)]
        assert max(sizes) - min(sizes) <= 1
        assert sum(sizes) == sum(manager.size(b) for b in manager.numbers) <= manager.num_slots


TestSharesMachine = SharesMachine.TestCase
TestSharesMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestSharesMachine = pytest.mark.timeout(60)(TestSharesMachine)
