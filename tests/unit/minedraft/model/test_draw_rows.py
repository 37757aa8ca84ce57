from __future__ import annotations

import math

import torch

from minedraft.model.draw_rows import DrawRows
from minedraft.model.sampling_row import Position, SamplingRow
from minedraft.types import RowParams


def test_the_table_has_a_line_for_each_position():
    params = [
        RowParams(temperature=1e-6, seed=(1 << 64) - 1),
        RowParams(temperature=0.7, top_k=3, top_p=0.9, min_p=0.25, seed=5),
    ]
    positions = [Position(SamplingRow(p, (1, 2), (3,) * n), (4,)) for n, p in enumerate(params)]
    rows = DrawRows.of([4, 2], positions, torch.device("cpu"))
    assert len(rows) == 2
    assert rows.places.tolist() == [4, 2]
    assert rows.seeds.tolist() == [-1, 5]
    assert rows.positions.tolist() == [3, 4]
    assert rows.temperatures.tolist() == [0.0, torch.tensor(0.7).item()]
    assert rows.top_k.tolist() == [0, 3]
    assert rows.top_p.tolist() == [1.0, 0.9]
    assert rows.log_min_p.tolist() == [-math.inf, torch.tensor(math.log(0.25)).item()]
    dtypes = [x.dtype for x in (rows.seeds, rows.temperatures, rows.top_p)]
    assert dtypes == [torch.int64, torch.float32, torch.float64]
