from __future__ import annotations

import math

import torch

from minedraft.model.logit_rows import mend, select, unsound


def test_consecutive_rows_are_a_view_and_others_a_copy():
    logits = torch.arange(20.0).view(5, 4)
    assert select(logits, [1, 2]).data_ptr() == logits[1].data_ptr()
    assert torch.equal(select(logits, [0, 3, 4]), logits[[0, 3, 4]])


def test_rows_without_numbers_are_told():
    logits = torch.zeros(5, 8)
    logits[1, 3] = math.nan
    logits[2, 0] = math.inf
    logits[3] = -math.inf
    logits[4, 1:] = -math.inf
    assert unsound(logits, [0, 1, 2, 3, 4]) == {1, 2, 3}
    assert unsound(logits, [2, 4]) == {2}


def test_mending_gives_every_row_a_finite_best_and_leaves_sound_ones():
    scores = torch.tensor([[0.0, -math.inf], [-math.inf, -math.inf], [math.nan, 1.0]])
    mend(scores)
    assert scores.tolist() == [[0.0, -math.inf], [0.0, 0.0], [-math.inf, 1.0]]
