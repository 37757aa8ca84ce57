from __future__ import annotations

from minedraft.bench.result import sha256_of


def test_the_hash_sees_order_lengths_and_ids():
    assert sha256_of([(1, 2), (3,)]) == sha256_of([[1, 2], [3]])
    assert sha256_of([(1, 2), (3,)]) != sha256_of([(3,), (1, 2)])
    assert sha256_of([(1, 2), (3,)]) != sha256_of([(1,), (2, 3)])
