from __future__ import annotations

import torch

from minedraft.model.batch import RowInput
from minedraft.model.step_meta import plan_step, stale_slots

CPU = torch.device("cpu")


def test_rows_are_packed_in_order_with_their_slots_and_blocks():
    rows = [
        RowInput([1] * 6, 0, range(5), 1),
        RowInput([2, 3], 8, range(20, 29), 2),
        RowInput([4, 5, 6], 3, [30, 40], 0),
    ]
    meta = plan_step(rows, block_size=4, device=CPU)
    assert meta.input_ids.tolist() == [[1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6]]
    assert meta.position_ids[0].tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 3, 4, 5]
    assert meta.cu_seqlens.tolist() == [0, 6, 8, 11]
    assert meta.starts.tolist() == [0, 8, 3]
    assert meta.slots.tolist() == [0, 1, 2, 3, 4, 5, 88, 89, 123, 160, 161]
    assert meta.logits_rows.tolist() == [5, 6, 7]
    # Blocks that hold a position, then the last of them again.
    assert meta.table.tolist() == [[0, 1, 1], [20, 21, 22], [30, 40, 40]]
    tensors = (meta.cu_seqlens, meta.starts, meta.slots, meta.table)
    assert {x.dtype for x in tensors} == {torch.int32}


def test_blocks_that_a_step_enters_are_stale_and_those_it_goes_on_in_are_not():
    rows = [RowInput([1, 1], 3, [7, 8], 1), RowInput([1], 5, [2, 3], 1, is_clean=True)]
    assert [[*stale_slots(row, 4)] for row in rows] == [[(8, 0)], [(3, 1)]]
