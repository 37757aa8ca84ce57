from __future__ import annotations

import torch

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
