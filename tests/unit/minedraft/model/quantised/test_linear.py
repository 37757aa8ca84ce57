from __future__ import annotations

import pytest
import torch
from torch import nn

from minedraft.model.quantised.grouped import GroupedWeight
from minedraft.model.quantised.linear import QuantisedLinear


@pytest.mark.parametrize("bias", [False, True])
def test_it_multiplies_by_the_dequantised_weight(bias):
    linear = nn.Linear(4, 2, bias=bias)
    codes = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=torch.uint8)
    weight = GroupedWeight(codes, torch.tensor([[2.0], [3.0]]), torch.ones(2, 1), 8, 4)
    layer = QuantisedLinear(linear)
    layer.fill(weight)
    x = torch.randn(3, 4)
    wanted = nn.functional.linear(x, weight.dequantised(), linear.bias)
    assert torch.equal(layer(x), wanted)
    assert (layer.in_features, layer.out_features) == (4, 2)


def test_it_is_not_used_before_it_is_loaded():
    with pytest.raises(RuntimeError, match="before it was loaded"):
        QuantisedLinear(nn.Linear(4, 2))(torch.ones(1, 4))


def test_its_scales_keep_their_type_when_it_is_moved():
    layer = QuantisedLinear(nn.Linear(4, 2))
    codes = torch.zeros(2, 4, dtype=torch.uint8)
    layer.fill(GroupedWeight(codes, torch.full((2, 1), 1 / 3), torch.ones(2, 1), 8, 4))
    layer.to(torch.bfloat16)
    assert layer.bias.dtype == torch.bfloat16
    assert layer.grouped.scales.tolist() == torch.full((2, 1), 1 / 3).tolist()
    assert layer.grouped.codes.dtype == torch.uint8
