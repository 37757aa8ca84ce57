"""The block allocator under any order of calls equals a stack of free blocks."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minedraft.blocks import BlockAllocator
from minedraft.errors import StateError


class BlocksMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(num_blocks=st.integers(0, 12), block_size=st.integers(1, 16))
    def start(self, num_blocks, block_size):
        self.pool = BlockAllocator(num_blocks, block_size)
        self.free = list(reversed(range(num_blocks)))
        self.owned: list[int] = []
        self.size = block_size
        self.num_blocks = num_blocks

    @rule(count=st.integers(0, 13))
    def allocate(self, count):
        if count > len(self.free):
            with pytest.raises(StateError, match=f"{count} blocks wanted, {len(self.free)} free"):
                self.pool.allocate(count)
            return
        want = [self.free.pop() for _ in range(count)]
        assert self.pool.allocate(count) == want
        self.owned += want

    @rule(data=st.data())
    def give_back(self, data):
        some = data.draw(
            st.lists(st.sampled_from(self.owned), unique=True) if self.owned else st.just([])
        )
        self.pool.free(some)
        self.free += some
        self.owned = [block for block in self.owned if block not in some]

    @rule(data=st.data())
    def give_back_what_is_free(self, data):
        if self.free:
            block = data.draw(st.sampled_from(self.free))
            with pytest.raises(StateError, match=f"block {block} is not in use"):
                self.pool.free([block])

    @rule(num_tokens=st.integers(0, 200))
    def count(self, num_tokens):
        want = len({position // self.size for position in range(num_tokens)})
        assert self.pool.blocks_for(num_tokens) == want

    @invariant()
    def equals_the_model(self):
        assert (self.pool.num_free, self.pool.num_used) == (len(self.free), len(self.owned))
        assert sorted(self.free + self.owned) == list(range(self.num_blocks))


TestBlocksMachine = BlocksMachine.TestCase
TestBlocksMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
