from __future__ import annotations

import torch

from minedraft.model.kernels.interface import KeyLayout
from minedraft.model.kv_pool import KVPool, LayerGeometry


def test_what_is_written_is_gathered_per_head_in_order_of_positions():
    pool = KVPool(
        [LayerGeometry(2, 3, 5)], num_blocks=4, block_size=2, dtype=torch.float32,
        device=torch.device("cpu"),
    )  # fmt: skip
    key, value = torch.randn(2, 4, 3), torch.randn(2, 4, 5)
    blocks, heads = [3, 3, 1, 1], 2
    rows = [(b * heads + h) * 2 + t % 2 for t, b in enumerate(blocks) for h in range(heads)]
    pool.write(0, torch.tensor(rows), key.transpose(0, 1), value.transpose(0, 1))
    pages = torch.tensor([b * heads + h for h in range(heads) for b in (3, 1)])
    keys, values = pool.gather(0, pages, 1, heads)
    assert torch.equal(keys[0], key)
    assert torch.equal(values[0], value)
    assert pool.num_kv_heads(0) == 2
    assert pool.num_bytes == 4 * 2 * 2 * (3 + 5) * 4


def test_in_columns_keys_lie_transposed_and_whole_vectors_fit():
    pool = KVPool(
        [LayerGeometry(2, 3, 5), LayerGeometry(1, 8, 32), LayerGeometry(2, 3, 5)], num_blocks=4,
        block_size=20, dtype=torch.bfloat16, device=torch.device("cpu"), layout=KeyLayout.COLUMNS,
    )  # fmt: skip
    assert pool.keys(0).shape == (4, 2, 3, 32)
    assert pool.values(0).shape == (4, 2, 20, 16)
    assert pool.keys(1).shape == (4, 1, 8, 32)
    assert pool.values(1).shape == (4, 1, 20, 32)
    assert pool.num_bytes == 2 * (2 * 4 * 2 * (3 * 32 + 20 * 16) + 4 * (8 * 32 + 20 * 32))
    for layer in range(3):
        pool.keys(layer).fill_(1)
        pool.values(layer).fill_(1)
    pool.clear(2, 18)
    for layer in range(3):
        assert pool.keys(layer)[2, ..., :18].all()
        assert not pool.keys(layer)[2, ..., 18:].any()
        assert pool.values(layer)[2, :, :18].all()
        assert not pool.values(layer)[2, :, 18:].any()
        assert pool.keys(layer)[[0, 1, 3]].all()
        assert pool.values(layer)[[0, 1, 3]].all()
