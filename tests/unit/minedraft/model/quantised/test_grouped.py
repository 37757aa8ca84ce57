from __future__ import annotations

import pytest
import torch

from minedraft.errors import ModelError
from minedraft.model.quantised.grouped import GroupedWeight, join, pack_codes

CODES = torch.tensor([[0, 1, 2, 3], [12, 13, 14, 15]], dtype=torch.uint8)
SCALES = torch.tensor([[1.0, 10.0], [0.5, 2.0]])
OFFSETS = torch.tensor([[0.0, -5.0], [100.0, 0.25]])
WANTED = [[0.0, 1.0, 15.0, 25.0], [106.0, 106.5, 28.25, 30.25]]


def weight(bits=4, **changes):
    pieces = {"codes": pack_codes(CODES, bits), "scales": SCALES, "offsets": OFFSETS}
    return GroupedWeight(**{**pieces, **changes}, bits=bits, group=2)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_code_times_its_scale_plus_its_offset(bits):
    given = weight(bits)
    assert given.dequantised().tolist() == WANTED
    assert (given.out_features, given.in_features) == (2, 4)
    assert given.num_bytes == 2 * 4 * bits // 8 + 2 * 2 * 4 * 2


def test_inputs_of_even_index_are_in_the_low_halves():
    assert pack_codes(CODES, 4).tolist() == [[0x10, 0x32], [0xDC, 0xFE]]


def test_it_is_rounded_once():
    third = weight(scales=torch.full((2, 2), 1 / 3))
    assert torch.equal(third.dequantised(torch.bfloat16), third.dequantised().bfloat16())


def test_rows_come_in_another_order():
    assert weight().rows(torch.tensor([1, 0, 1])).dequantised().tolist() == [
        WANTED[1], WANTED[0], WANTED[1]
    ]  # fmt: skip


def test_weights_of_one_input_join():
    joined = join([weight(), weight(scales=SCALES * 2, offsets=OFFSETS * 2)])
    assert joined.dequantised().tolist() == WANTED + [[2 * x for x in row] for row in WANTED]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scales": torch.ones(2, 3), "offsets": torch.ones(2, 3)}, r"codes \(2, 2\) of 4 bits"),
        ({"offsets": torch.ones(2, 1)}, "do not fit"),
        ({"scales": torch.ones(2, 2).double()}, "do not fit"),
        ({"codes": torch.zeros(3, 2, dtype=torch.uint8)}, "do not fit"),
        ({"scales": torch.tensor([[1.0, torch.nan], [1.0, 1.0]])}, "not a finite number"),
        ({"offsets": torch.tensor([[1.0, torch.inf], [1.0, 1.0]])}, "not a finite number"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(changes, said):
    with pytest.raises(ModelError, match=said):
        weight(**changes)
