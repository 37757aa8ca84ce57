from __future__ import annotations

import pytest

from minedraft.blocks import BlockAllocator
from minedraft.errors import StateError


@pytest.mark.parametrize(
    ("num_tokens", "want"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3)]
)
def test_blocks_are_rounded_up(num_tokens, want):
    assert BlockAllocator(8, 16).blocks_for(num_tokens) == want


def test_every_block_is_handed_out_once():
    pool = BlockAllocator(5, 4)
    assert sorted(pool.allocate(2) + pool.allocate(3)) == [0, 1, 2, 3, 4]
    assert (pool.num_free, pool.num_used) == (0, 5)


def test_the_block_freed_last_is_taken_first():
    pool = BlockAllocator(5, 4)
    first, second, _third = pool.allocate(3)
    pool.free([first, second])
    assert pool.allocate(2) == [second, first]


def test_too_many_are_refused_and_nothing_is_taken():
    pool = BlockAllocator(3, 4)
    pool.allocate(1)
    with pytest.raises(StateError, match="3 blocks wanted, 2 free"):
        pool.allocate(3)
    assert (pool.num_free, pool.num_used) == (2, 1)


@pytest.mark.parametrize("twice", [True, False])
def test_a_block_not_in_use_cannot_be_freed(twice):
    pool = BlockAllocator(3, 4)
    block = pool.allocate(1)[0]
    if twice:
        pool.free([block])
    with pytest.raises(StateError, match="is not in use"):
        pool.free([block if twice else 2])


def test_a_repeated_block_in_one_call_is_found():
    pool = BlockAllocator(3, 4)
    block = pool.allocate(1)[0]
    with pytest.raises(StateError, match=f"block {block} is not in use"):
        pool.free([block, block])


def test_a_pool_without_blocks_serves_nobody():
    assert BlockAllocator(0, 1).allocate(0) == []
    with pytest.raises(StateError):
        BlockAllocator(0, 1).allocate(1)


def test_a_pool_takes_no_memory_for_blocks_that_were_never_used():
    pool = BlockAllocator(2**40, 16)
    assert pool.allocate(3) == [0, 1, 2]
    assert pool.num_free == 2**40 - 3
    pool.free([1])
    assert pool.allocate(2) == [1, 3]
