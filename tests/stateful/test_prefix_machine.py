"""The prefix cache under any order of sequences that begin alike equals a pool of written content.

The model writes what each block holds. A sequence shares what is published, allocates the rest,
computes it, publishes it, goes on, ends. References are the sequences that list a block; none
writes to a block that is published or shared; and when nothing lives every block is free or cached.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minedraft.errors import StateError
from minedraft.prefix import PrefixCache, extend_keys

INDEX = st.integers(0, 1000)


@dataclass
class Sequence:
    """One that lives."""

    tokens: list[int]
    salt: str
    keys: list[bytes] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0


class PrefixMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(num_blocks=st.integers(1, 14), size=st.integers(1, 4), is_on=st.booleans())
    def start(self, num_blocks, size, is_on):
        self.cache = PrefixCache(num_blocks, size, is_on=is_on)
        self.num_blocks, self.size, self.is_on = num_blocks, size, is_on
        self.live: list[Sequence] = []
        self.content: dict[int, tuple] = {}
        """What each block holds: salt and all tokens up to its end."""
        self.num_evictions = 0

    def key(self, sequence, index):
        while len(sequence.keys) <= index:
            first = len(sequence.keys) * self.size
            extend_keys(
                sequence.keys,
                sequence.tokens[first : first + self.size],
                self.size,
                salt=sequence.salt,
                fingerprint="f",
            )
        return sequence.keys[index]

    @rule(
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=12),
        salt=st.sampled_from(("", "", "s")),
    )
    def begin(self, tokens, salt):
        self.live.append(Sequence(tokens, salt))

    @precondition(lambda self: self.live)
    @rule(index=INDEX, num_feed=st.integers(1, 12))
    def feed(self, index, num_feed):
        """Share what is there, then feed some of the rest; the last token always."""
        sequence = self.live[index % len(self.live)]
        last = (len(sequence.tokens) - 1) // self.size
        first = sequence.num_computed // self.size
        found = self.cache.find(self.key(sequence, i) for i in range(first, last))
        if found:
            idle = self.cache.num_idle(found)
            before = self.cache.num_free
            self.cache.share(found)
            assert self.cache.num_free == before - idle
            self.cache.free(sequence.blocks[first:])
            sequence.blocks[first:] = found
            sequence.num_computed = (first + len(found)) * self.size
        start = sequence.num_computed
        end = min(start + num_feed, len(sequence.tokens))
        need = self.cache.blocks_for(end) - len(sequence.blocks)
        if need > self.cache.num_free:
            with pytest.raises(StateError, match=f"{need} blocks wanted"):
                self.cache.allocate(need)
            return
        sequence.blocks += self.cache.allocate(max(need, 0))
        written = sequence.blocks[start // self.size :] if end > start else []
        for other in self.live:
            assert other is sequence or not set(other.blocks) & set(written)
        for index_ in range(end // self.size):
            held = (sequence.salt, tuple(sequence.tokens[: (index_ + 1) * self.size]))
            if index_ < start // self.size:
                assert self.content[sequence.blocks[index_]] == held
            else:
                self.content[sequence.blocks[index_]] = held
        for block in sequence.blocks[end // self.size :]:
            self.content.pop(block, None)
        sequence.num_computed = end

    @precondition(lambda self: self.live)
    @rule(index=INDEX)
    def publish(self, index):
        """What is computed may be published at any time, once or again."""
        sequence = self.live[index % len(self.live)]
        for i in range(min(sequence.num_computed, len(sequence.tokens) - 1) // self.size):
            self.cache.publish(sequence.blocks[i], self.key(sequence, i))

    @precondition(lambda self: self.live)
    @rule(index=INDEX, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def go_on(self, index, tokens):
        self.live[index % len(self.live)].tokens += tokens

    @precondition(lambda self: self.live)
    @rule(index=INDEX)
    def withdraw(self, index):
        """Nobody finds it any more."""
        sequence = self.live[index % len(self.live)]
        self.cache.withdraw(sequence.blocks)
        first = self.key(sequence, 0) if len(sequence.tokens) >= self.size else b""
        found = self.cache.find([first])
        assert not set(found) & set(sequence.blocks)

    @precondition(lambda self: self.live)
    @rule(index=INDEX)
    def end(self, index):
        sequence = self.live.pop(index % len(self.live))
        self.cache.free(sequence.blocks)

    @rule()
    def free_what_is_free(self):
        listed = {block for sequence in self.live for block in sequence.blocks}
        for block in set(range(self.num_blocks)) - listed:
            with pytest.raises(StateError, match=f"block {block} is not in use"):
                self.cache.free([block])

    @invariant()
    def references_are_the_sequences(self):
        listed = {block for sequence in self.live for block in sequence.blocks}
        assert self.cache.num_used == len(listed)
        assert self.cache.num_free == self.num_blocks - len(listed)
        assert self.cache.num_cached <= self.cache.num_free
        assert self.is_on or (self.cache.num_cached, self.cache.num_evictions) == (0, 0)
        self.cache.check(
            [sequence.blocks for sequence in self.live],
            [sequence.num_computed // self.size for sequence in self.live],
        )

    def teardown(self):
        if not hasattr(self, "cache"):
            return
        for sequence in self.live:
            self.cache.free(sequence.blocks)
        assert (self.cache.num_used, self.cache.num_free) == (0, self.num_blocks)
        assert sorted(self.cache.allocate(self.num_blocks)) == list(range(self.num_blocks))
        assert self.cache.num_cached == 0


TestPrefixMachine = PrefixMachine.TestCase
TestPrefixMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
