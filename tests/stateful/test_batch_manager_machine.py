"""The Batch Manager under any order of events, against the paper's own state and plain lists.

`Paper` is the state of MineDraft's scheduler as it is written there: flags True and False,
`balance`, `has_scheduled_decoding`. Batch 0 is True. The model's lists say who is where; both must
agree with the manager after every event.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minedraft.errors import StateError
from minedraft.services.coordinator.core.assignment import RULES
from minedraft.types import RequestId


class Paper:
    """`next_flag` and `recycle`, word for word."""

    def __init__(self):
        self.balance = 0
        self.has_scheduled_decoding = False

    def next_flag(self, skip_flag):
        flag = not skip_flag if self.has_scheduled_decoding else self.balance >= 0
        self.balance += -1 if flag else 1
        return flag

    def recycle(self, flag):
        self.balance += 1 if flag else -1

    def nothing_runs(self):
        assert self.balance == 0, "the plugin warns here"
        self.has_scheduled_decoding = False


class BatchManagerMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(
        num_batches=st.sampled_from((2, 2, 1, 3)),
        max_batch_size=st.integers(1, 4),
        by_paper=st.booleans(),
    )
    def start(self, num_batches, max_batch_size, by_paper):
        self.by_paper = by_paper and num_batches < 3
        kind = RULES["paper" if self.by_paper else "balanced"]
        self.manager = kind(num_batches, max_batch_size)
        self.skip_flag = False
        """Of the paper, in its fallback: it changes with each step, whoever may run."""
        self.lists: list[list[str]] = [[] for _ in range(num_batches)]
        self.max = max_batch_size
        self.paper = Paper()
        self.started = False
        self.count = 0

    @rule(drafting=st.integers(0, 2))
    def arrive(self, drafting):
        drafting %= len(self.lists)
        if len(self.lists) == 2:
            skip_flag = drafting != 0
            if self.by_paper and self.started and not all(self.lists):
                skip_flag = self.skip_flag
            flag = self.paper.next_flag(skip_flag)
            want = 0 if flag else 1
            if len(self.lists[want]) == self.max:
                self.paper.recycle(flag)
        elif self.started:
            want = drafting
        else:
            sizes = [len(batch) for batch in self.lists]
            want = sizes.index(min(sizes))
        full = len(self.lists[want]) == self.max
        got = self.manager.choose(drafting)
        assert got == (None if full else want)
        if full:
            with pytest.raises(StateError, match=f"batch {want} is full"):
                self.manager.add(RequestId("x"), want)
            return
        name = RequestId(f"r{self.count}")
        self.count += 1
        self.manager.add(name, want)
        self.lists[want].append(name)

    @precondition(lambda self: any(self.lists))
    @rule(data=st.data())
    def end(self, data):
        name = data.draw(st.sampled_from([n for batch in self.lists for n in batch]))
        (batch,) = (b for b, names in enumerate(self.lists) if name in names)
        self.manager.remove(RequestId(name))
        self.lists[batch].remove(name)
        self.paper.recycle(batch == 0)
        if not any(self.lists):
            self.started = False
            if len(self.lists) == 2:
                self.paper.nothing_runs()

    @rule()
    def end_of_nobody(self):
        self.manager.remove(RequestId("nobody"))

    @precondition(lambda self: any(self.lists))
    @rule(data=st.data())
    def join_twice(self, data):
        name = data.draw(st.sampled_from([n for batch in self.lists for n in batch]))
        with pytest.raises(StateError, match=f"{name} is in a batch already"):
            self.manager.add(RequestId(name), 0)

    @precondition(lambda self: any(self.lists))
    @rule(pick=st.integers(0, 2))
    def step(self, pick):
        able = [batch for batch, names in enumerate(self.lists) if names]
        batch = able[pick % len(able)]
        self.manager.start(batch)
        # True is batch 0. In rotation the next one that is verified is the other one.
        self.skip_flag = batch == 0 if all(self.lists) else not self.skip_flag
        self.started = self.paper.has_scheduled_decoding = True

    @rule(batch=st.integers(0, 2))
    def sync(self, batch):
        batch %= len(self.lists)
        want = []
        while not self.by_paper and len(self.lists[batch]) - min(map(len, self.lists)) >= 2:
            sizes = [len(names) for names in self.lists]
            to = sizes.index(min(sizes))
            name = self.lists[batch].pop()
            self.lists[to].append(name)
            want.append((name, to))
            self.paper.recycle(batch == 0)  # the paper would call it a preemption ...
            self.paper.balance += -1 if to == 0 else 1  # ... and an arrival
        assert self.manager.rebalance(batch) == tuple(want)
        assert self.by_paper or len(self.lists[batch]) - min(map(len, self.lists)) <= 1

    @invariant()
    def equals_the_model(self):
        manager = self.manager
        manager.check()
        batches = range(len(self.lists))
        assert [list(manager.members(b)) for b in batches] == self.lists
        assert [manager.size(b) for b in batches] == [len(names) for names in self.lists]
        assert manager.started == self.started
        for batch, names in enumerate(self.lists):
            assert all(manager.batch_of(RequestId(name)) == batch for name in names)
        if len(self.lists) == 2:
            assert manager.balance == self.paper.balance
            assert self.paper.has_scheduled_decoding == self.started


TestBatchManagerMachine = BatchManagerMachine.TestCase
TestBatchManagerMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
