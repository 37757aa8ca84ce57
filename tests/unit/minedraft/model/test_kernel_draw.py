from __future__ import annotations

import math

import torch

from minedraft.model.draw_rows import BROKEN, UNDECIDED
from minedraft.model.kernel_draw import draw_by_kernel
from minedraft.model.sampling_row import Position, SamplingRow
from minedraft.types import RowParams


class Kernel:
    """The likeliest token of every row."""

    def __init__(self) -> None:
        self.seen = []

    def __call__(self, logits, rows):
        chosen = logits[rows.places]
        self.seen.append((rows.places.tolist(), chosen.dtype))
        best, tokens = chosen.float().max(-1)
        return torch.where(best.isfinite(), tokens, BROKEN)


def of(*params: RowParams) -> list[Position]:
    return [Position(SamplingRow(p, (1, 2, 3))) for p in params]


def test_rows_without_processors_are_one_call_on_the_logits_themselves():
    kernel = Kernel()
    logits = torch.eye(3).bfloat16()
    assert draw_by_kernel(logits, of(*[RowParams()] * 3), kernel) == [0, 1, 2]
    assert kernel.seen == [([0, 1, 2], torch.bfloat16)]


def test_processors_act_on_a_copy_of_their_rows_alone():
    kernel = Kernel()
    logits = torch.eye(4)
    before = logits.clone()
    banned = RowParams(bad_words=((1,), (3,)))
    found = draw_by_kernel(logits, of(RowParams(), banned, RowParams(), banned), kernel)
    assert found == [0, 0, 2, 0]
    assert kernel.seen == [([0, 2], torch.float32), ([0, 1], torch.float32)]
    assert torch.equal(logits, before)


def test_what_parameters_hide_is_broken_and_what_they_rule_out_is_torchs():
    logits = torch.zeros(2, 4)
    logits[0, 1] = math.nan
    logits[1] = torch.tensor([-math.inf, 0.0, -math.inf, -math.inf])
    found = draw_by_kernel(logits, of(*[RowParams(bad_words=((1,),))] * 2), Kernel())
    assert found == [BROKEN, UNDECIDED]
