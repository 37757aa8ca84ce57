"""Each layout by hand: a few words whose numbers can be read off."""

from __future__ import annotations

import pytest
import torch

from minedraft.errors import ModelError
from minedraft.model.quantised.grouped import GroupedWeight
from minedraft.model.quantised.layouts import read_layer, unpack_words
from minedraft.model_files.quantisation import Layout, Quantisation
from minedraft.model_files.quantised_layers import QuantisedLayer

RISING = 0x76543210
"""Four bits each: 0 in the lowest, 7 in the highest."""
EIGHTS = -0x77777778
"""0x88888888: eight times 8."""


def words(*values):
    return torch.tensor(values, dtype=torch.int32)


def halves(*values):
    return torch.tensor(values, dtype=torch.float16)


def read(layout, bits, pieces, shape=(1, 8), group=8, **more):
    quantisation = Quantisation("x", layout, bits, group, **more)
    layer = QuantisedLayer("a", *shape, frozenset(pieces))
    weight = read_layer(quantisation, layer, pieces.__getitem__)
    return weight.dequantised() if isinstance(weight, GroupedWeight) else weight


def test_the_lowest_bits_come_first():
    assert unpack_words(words([RISING]), 4).tolist() == [list(range(8))]
    assert unpack_words(words([0x04030201]), 8).tolist() == [[1, 2, 3, 4]]
    assert unpack_words(words([-1]), 4).tolist() == [[15] * 8]


GPTQ = {
    "qweight": words([RISING] * 8),  # 8 inputs, 8 outputs: each output has 0 to 7
    "qzeros": words([RISING]),  # output n: n, less one
    "scales": halves([0.5] * 8),
}


def test_gptq_takes_one_more_than_the_stored_zero_point():
    weight = read(Layout.GPTQ, 4, GPTQ, (8, 8), zeros_less_one=True)
    assert weight[0].tolist() == [(k - 1) / 2 for k in range(8)]
    assert weight[7].tolist() == [(k - 8) / 2 for k in range(8)]
    second = read(Layout.GPTQ, 4, GPTQ, (8, 8))
    assert second[7].tolist() == [(k - 7) / 2 for k in range(8)]


def test_a_zero_point_of_15_less_one_wraps():
    weight = read(Layout.GPTQ, 4, GPTQ | {"qzeros": words([-1])}, (8, 8), zeros_less_one=True)
    assert weight[0].tolist() == [k / 2 for k in range(8)]


def test_inputs_in_another_order_have_the_scale_of_their_group():
    pieces = {
        "qweight": words([RISING] * 8, [RISING] * 8),
        "qzeros": words([0], [0]),
        "scales": halves([1.0] * 8, [100.0] * 8),
        "g_idx": words(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1),
    }
    weight = read(Layout.GPTQ, 4, pieces, (8, 16))
    assert weight[3].tolist() == [0, 100, 2, 300, 4, 500, 6, 700] * 2


@pytest.mark.parametrize("index", [[0] * 15 + [2], [0] * 15 + [-1]])
def test_a_group_that_is_not_there_is_refused(index):
    pieces = {
        "qweight": words([RISING] * 8, [RISING] * 8),
        "qzeros": words([0], [0]),
        "scales": halves([1.0] * 8, [1.0] * 8),
        "g_idx": words(*index),
    }
    with pytest.raises(ModelError, match=r"g_idx has .* want groups 0 to 1"):
        read(Layout.GPTQ, 4, pieces, (8, 16))


def test_awq_packs_outputs_even_ones_first():
    pieces = {
        "qweight": words(*[[RISING]] * 8),  # one word per input
        "qzeros": words([EIGHTS]),
        "scales": halves([1.0] * 8),
    }
    weight = read(Layout.AWQ, 4, pieces, (8, 8))
    # Bits 0 to 3 are output 0, the next four output 2, then 4, 6, 1, 3, 5, 7.
    assert weight[:, 0].tolist() == [0 - 8, 4 - 8, 1 - 8, 5 - 8, 2 - 8, 6 - 8, 3 - 8, 7 - 8]


PACKED = {
    "weight_packed": words([RISING]),
    "weight_scale": halves([2.0]),
    "weight_shape": torch.tensor([1, 8]),
}


def test_packed_codes_are_signed_around_8():
    assert read(Layout.PACKED, 4, PACKED).tolist() == [[2.0 * (k - 8) for k in range(8)]]


def test_packed_zero_points_lie_along_the_outputs():
    zeros = PACKED | {"weight_zero_point": words([3])}  # of output 0; 7 more are padding
    assert read(Layout.PACKED, 4, zeros).tolist() == [[2.0 * (k - 3) for k in range(8)]]
    signed = PACKED | {"weight_zero_point": torch.tensor([[-5]], dtype=torch.int8)}
    assert torch.equal(read(Layout.PACKED, 4, signed), read(Layout.PACKED, 4, zeros))


def test_a_shape_that_contradicts_the_codes_is_refused():
    with pytest.raises(ModelError, match=r"weight_shape is \(1, 7\), want \(1, 8\)"):
        read(Layout.PACKED, 4, PACKED | {"weight_shape": torch.tensor([1, 7])})


def test_signed_bytes_are_multiplied_by_the_scale_of_their_output():
    pieces = {
        "weight": torch.tensor([[-128, 0, 127], [1, 2, 3]], dtype=torch.int8),
        "weight_scale": torch.tensor([[0.5], [2.0]]),
    }
    assert read(Layout.INT8, 8, pieces, (2, 3), None).tolist() == [[-64, 0, 63.5], [2, 4, 6]]
    one = pieces | {"weight_scale": torch.tensor([1.0])}
    assert read(Layout.INT8, 8, one, (2, 3), None).tolist() == [[-128, 0, 127], [1, 2, 3]]


FP8 = torch.tensor([[1.0, 1.5, -2.0], [448.0, 0.0, 1.0], [1.0, 1.0, 1.0]])


def test_fp8_blocks_are_scaled_and_the_last_ones_may_be_smaller():
    pieces = {
        "weight": FP8.to(torch.float8_e4m3fn),
        "weight_scale_inv": torch.tensor([[1.0, 10.0], [100.0, 1000.0]]),
    }
    weight = read(Layout.FP8, 8, pieces, (3, 3), None, block=(2, 2))
    assert weight.tolist() == [[1, 1.5, -20], [448, 0, 10], [100, 100, 1000]]


@pytest.mark.parametrize("layout", [Layout.FP8, Layout.FP8_SCALED])
def test_a_scale_that_is_no_number_is_refused(layout):
    bad = torch.full((1, 1), torch.nan)
    pieces = {
        "weight": FP8.to(torch.float8_e4m3fn), "weight_scale_inv": bad, "weight_scale": bad
    }  # fmt: skip
    with pytest.raises(ModelError, match=r"weight_scale.*: a scale is not a finite number"):
        read(layout, 8, pieces, (3, 3), None)
