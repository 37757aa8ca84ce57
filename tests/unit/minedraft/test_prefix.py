from __future__ import annotations

import pytest

from minedraft.errors import StateError
from minedraft.prefix import PrefixCache, extend_keys

SIZE = 4


def keys_of(token_ids, size=SIZE, salt="", fingerprint="f") -> list[bytes]:
    keys: list[bytes] = []
    extend_keys(keys, token_ids, size, salt=salt, fingerprint=fingerprint)
    return keys


def filled(count: int, num_blocks: int = 8) -> tuple[PrefixCache, list[int], list[bytes]]:
    """A cache in which one sequence has published that many blocks."""
    cache = PrefixCache(num_blocks, SIZE)
    blocks, keys = cache.allocate(count), keys_of(range(count * SIZE))
    for block, key in zip(blocks, keys, strict=True):
        cache.publish(block, key)
    return cache, blocks, keys


def test_keys_are_the_same_whether_hashed_at_once_or_block_by_block():
    tokens = tuple(range(70_000, 70_012))
    step_by_step: list[bytes] = []
    for start in range(0, 12, SIZE):
        extend_keys(step_by_step, tokens[start : start + SIZE], SIZE, salt="a", fingerprint="f")
    assert step_by_step == keys_of(tokens, salt="a")
    assert {len(key) for key in step_by_step} == {16}


def test_a_key_tells_of_everything_before_it():
    base = keys_of((1, 2, 3, 4, 5, 6, 7, 8))
    other_start = keys_of((9, 2, 3, 4, 5, 6, 7, 8))
    assert base[1] != other_start[1]
    assert base[0] == keys_of((1, 2, 3, 4, 9, 9, 9, 9))[0]
    assert base[0] != keys_of((4, 3, 2, 1))[0]


@pytest.mark.parametrize(
    ("salt", "fingerprint"), [("x", "f"), ("", "g"), ("f", ""), ("\u00e9", "f"), ("", "")]
)
def test_another_salt_or_other_weights_share_no_key(salt, fingerprint):
    tokens = range(8)
    assert not set(keys_of(tokens)) & set(keys_of(tokens, salt=salt, fingerprint=fingerprint))


def test_salt_and_fingerprint_do_not_run_into_each_other():
    assert keys_of(range(4), salt="b", fingerprint="a") != keys_of(
        range(4), salt="", fingerprint="ab"
    )


def test_no_tokens_have_no_keys():
    assert keys_of(()) == []


def test_what_one_published_others_share_until_the_last_lets_go():
    cache, blocks, keys = filled(2)
    assert cache.find(keys) == blocks
    cache.share(blocks)
    cache.free(blocks)
    assert (cache.num_used, cache.num_cached, cache.num_free) == (2, 0, 6)
    cache.free(blocks)
    assert (cache.num_used, cache.num_cached, cache.num_free) == (0, 2, 8)
    cache.share(cache.find(keys))
    assert (cache.num_used, cache.num_cached) == (2, 0)


def test_a_match_ends_at_the_first_block_that_is_missing():
    cache, blocks, keys = filled(3)
    cache.withdraw(blocks[1:2])
    assert cache.find(keys) == blocks[:1]


def test_the_least_recently_used_goes_first_and_of_one_sequence_its_tail():
    cache, blocks, keys = filled(3, num_blocks=6)
    late = cache.allocate(3)
    late_keys = keys_of(range(100, 112))
    for block, key in zip(late, late_keys, strict=True):
        cache.publish(block, key)
    cache.free(blocks)
    cache.free(late)
    assert cache.allocate(1) == blocks[2:]
    assert cache.find(keys) == blocks[:2]
    cache.share(blocks[:1])
    cache.free(blocks[:1])  # used again: only its second block is older than the other sequence
    cache.allocate(2)
    assert (cache.find(keys), cache.find(late_keys)) == (blocks[:1], late[:2])
    assert cache.num_evictions == 3


def test_free_blocks_go_before_cached_ones():
    cache, blocks, keys = filled(2, num_blocks=4)
    cache.free(blocks)
    cache.allocate(2)
    assert (cache.find(keys), cache.num_evictions) == (blocks, 0)


def test_two_that_publish_the_same_keep_a_block_each_and_one_is_found():
    cache, blocks, keys = filled(1)
    twin = cache.allocate(1)
    cache.publish(twin[0], keys[0])
    assert cache.find(keys) == blocks
    cache.free(twin)
    assert cache.num_cached == 0, "it is free: nothing finds it"
    cache.free(blocks)
    assert cache.find(keys) == blocks


def test_a_withdrawn_block_stays_with_those_that_list_it():
    cache, blocks, keys = filled(2)
    cache.share(blocks)
    cache.withdraw(blocks)
    assert cache.find(keys) == []
    cache.free(blocks)
    assert cache.num_used == 2
    cache.free(blocks)
    assert (cache.num_used, cache.num_cached) == (0, 0)
    cache.withdraw(blocks)  # no more than before


def test_a_cached_block_that_is_withdrawn_is_free():
    cache, blocks, keys = filled(2)
    cache.free(blocks)
    cache.withdraw(blocks[:1])
    assert (cache.num_cached, cache.num_free, cache.find(keys)) == (1, 8, [])


def test_one_that_is_off_publishes_nothing():
    cache = PrefixCache(4, SIZE, is_on=False)
    blocks = cache.allocate(1)
    cache.publish(blocks[0], keys_of(range(4))[0])
    cache.free(blocks)
    assert (cache.find(keys_of(range(4))), cache.num_cached) == ([], 0)


def test_a_block_is_not_freed_twice_whether_it_is_cached_or_free():
    cache, blocks, _ = filled(1)
    other = cache.allocate(1)
    cache.free([*blocks, *other])
    for block in (*blocks, *other):
        with pytest.raises(StateError, match=f"block {block} is not in use"):
            cache.free([block])
    with pytest.raises(StateError, match=f"block {other[0]} is not published"):
        cache.share(other)
    with pytest.raises(StateError, match="9 blocks wanted, 8 free"):
        cache.allocate(9)


def test_a_check_finds_lost_references_and_writers_of_shared_blocks():
    cache, blocks, _ = filled(2)
    cache.check([blocks], [2])
    with pytest.raises(StateError, match="are counted"):
        cache.check([blocks, blocks[:1]], [2, 1])
    cache.share(blocks[:1])
    cache.check([blocks, blocks[:1]], [2, 1])
    with pytest.raises(StateError, match=f"block {blocks[0]} may be written"):
        cache.check([blocks, blocks[:1]], [2, 0])


def test_a_pool_takes_no_memory_for_blocks_that_were_never_used():
    cache = PrefixCache(2**40, 16)
    cache.free(cache.allocate(3))
    assert cache.num_free == 2**40
