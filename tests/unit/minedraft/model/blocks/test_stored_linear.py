from __future__ import annotations

import pytest
import torch
from torch import nn

from minedraft.model.blocks.stored_linear import JoinedLinear, StoredLinear, store, store_linears
from minedraft.model.kernels.torch_maker import TorchKernels
from minedraft.model.quantised.grouped import GroupedWeight, pack_codes
from minedraft.model.quantised.linear import QuantisedLinear


@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_layers_of_one_input_are_stored_side_by_side(bias):
    torch.manual_seed(0)
    first, second = nn.Linear(32, 48, bias=bias), nn.Linear(32, 16, bias=bias)
    x = torch.randn(7, 32)
    kernels = TorchKernels(torch.float32)
    got = store(kernels, first, second)(x)
    torch.testing.assert_close(got, torch.cat([first(x), second(x)], -1))


@torch.inference_mode()
def test_a_model_computes_the_same_with_its_linears_stored():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12), nn.Sequential(nn.Linear(12, 5, bias=False)))
    x = torch.randn(2, 3, 8)
    want = model(x)
    assert store_linears(model, TorchKernels(torch.float32)) == 2
    assert isinstance(model[1][0], StoredLinear)
    assert not list(model.parameters()), "dense weights are released"
    torch.testing.assert_close(model(x), want)


def test_other_layers_than_plain_linears_stay():
    class Scaled(nn.Linear):
        """Computes something else."""

    model = nn.Sequential(Scaled(2, 2), nn.Conv1d(2, 2, 1))
    assert store_linears(model, TorchKernels(torch.float32)) == 0


def test_a_tied_head_is_stored_and_the_embedding_kept():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            self.lm_head = nn.Linear(8, 20, bias=False)
            self.lm_head.weight = self.embed.weight

    model = Tied()
    before = model.embed.weight.clone()
    store_linears(model, TorchKernels(torch.float32))
    assert isinstance(model.lm_head, StoredLinear)
    assert torch.equal(model.embed.weight, before)


def quantised(inputs, outputs, bits=4, group=8, *, bias=False):
    layer = QuantisedLinear(nn.Linear(inputs, outputs, bias=bias))
    codes = torch.randint(0, 1 << bits, (outputs, inputs), dtype=torch.uint8)
    shape = outputs, inputs // group
    scales, offsets = torch.rand(shape), torch.randn(shape)
    layer.fill(GroupedWeight(pack_codes(codes, bits), scales, offsets, bits, group))
    return layer


@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_quantised_layers_of_one_kind_are_stored_as_one(bias):
    torch.manual_seed(0)
    layers = [quantised(32, outputs, bias=bias) for outputs in (48, 16)]
    x = torch.randn(7, 32)
    stored = store(TorchKernels(torch.float32), *layers)
    assert isinstance(stored, StoredLinear)
    torch.testing.assert_close(stored(x), torch.cat([layer(x) for layer in layers], -1))


@torch.inference_mode()
def test_layers_of_several_kinds_write_side_by_side():
    torch.manual_seed(0)
    layers = [
        quantised(32, 48), quantised(32, 16, group=16), quantised(32, 8, bits=8),
        nn.Linear(32, 24, bias=False), nn.Linear(32, 8, bias=False),
    ]  # fmt: skip
    x, residual = torch.randn(2, 3, 32), torch.randn(6, 104)
    stored = store(TorchKernels(torch.float32), *layers)
    assert isinstance(stored, JoinedLinear)
    wanted = torch.cat([layer(x) for layer in layers], -1)
    torch.testing.assert_close(stored(x), wanted)
    assert (stored.in_features, stored.out_features) == (32, 104)
    added = residual + wanted.view(6, 104)
    stored.add(x.view(6, 32), residual)
    torch.testing.assert_close(residual, added)


@torch.inference_mode()
def test_quantised_layers_of_a_model_are_stored_too():
    torch.manual_seed(0)
    model = nn.Sequential(quantised(8, 16), nn.Linear(16, 4))
    x = torch.randn(5, 8)
    wanted = model(x)
    assert store_linears(model, TorchKernels(torch.float32)) == 2
    torch.testing.assert_close(model(x), wanted)
