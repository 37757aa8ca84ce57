from __future__ import annotations

import torch

from minedraft.model.batch import RowInput
from minedraft.model.step_meta import plan_step

CPU = torch.device("cpu")


def test_verify_rows_share_a_group_and_prefill_chunks_stand_alone():
    rows = [
        RowInput([1] * 60, 0, range(15), 1),
        RowInput([2, 3], 8, range(20, 23), 2),
        RowInput([4] * 5, 4, range(30, 33), 5),
    ]
    meta = plan_step(rows, block_size=4, device=CPU)
    assert [(g.num_rows, g.query_len, g.is_long) for g in meta.groups] == [
        (2, 5, False),
        (1, 60, True),
    ]
    # Packed: the 2 tokens (longer context first), the 5, the 60; logits in the rows' order.
    assert meta.logits_rows.tolist() == [66, 0, 1, 2, 3, 4, 5, 6]
    assert meta.position_ids[0, :7].tolist() == [8, 9, 4, 5, 6, 7, 8]
    assert meta.blocks[:7].tolist() == [22, 22, 31, 31, 31, 31, 32]


def test_a_mask_hides_the_future_the_past_of_the_window_and_other_rows_padding():
    rows = [RowInput([1, 1], 6, [5, 6], 1), RowInput([1], 2, [7], 1)]
    meta = plan_step(rows, block_size=4, device=CPU)
    span = meta.groups[0].span(4, need_mask=False, like=torch.empty(0), heads=(2, 1))
    seen = span.mask[:, 0] == 0
    assert [q.nonzero().flatten().tolist() for q in seen[0]] == [[3, 4, 5, 6], [4, 5, 6, 7]]
    assert [q.nonzero().flatten().tolist() for q in seen[1]] == [[0, 1, 2], [0, 1, 2]]
    assert span.pages.tolist() == [5, 6, 7, 7]
    assert span.packed_mask.shape == (2, 1, 4, 8)


def test_blocks_wholly_before_the_window_are_not_gathered():
    meta = plan_step([RowInput([1], 30, range(8), 1)], block_size=4, device=CPU)
    span = meta.groups[0].span(4, need_mask=False, like=torch.empty(0), heads=(1, 1))
    assert span.pages.tolist() == [6, 7]
