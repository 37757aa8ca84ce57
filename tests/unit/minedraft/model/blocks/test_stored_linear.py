from __future__ import annotations

import pytest
import torch
from torch import nn

from minedraft.model.blocks.stored_linear import StoredLinear, store, store_linears
from minedraft.model.kernels.torch_maker import TorchKernels


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
