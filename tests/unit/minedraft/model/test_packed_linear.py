from __future__ import annotations

import pytest
import torch
from torch import nn

from minedraft.model import packed_linear
from minedraft.model.packed_linear import FusedPart, PackedLinear, pack_linears, packing_works


class Attention(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.q_proj = nn.Linear(32, 48, bias=bias)
        self.k_proj = nn.Linear(32, 16, bias=bias)
        self.v_proj = nn.Linear(32, 16, bias=bias)
        self.o_proj = nn.Linear(48, 32)

    def forward(self, x):
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_fused_projections_equal_the_dense_ones(dtype, bias):
    if not packing_works(dtype):
        pytest.skip(f"oneDNN packs no {dtype} on this CPU")
    torch.manual_seed(0)
    module = Attention(bias).to(dtype)
    x = torch.randn(1, 7, 32).to(dtype)
    want = module(x)
    assert pack_linears(module, timed=False) == 4
    assert isinstance(module.q_proj, FusedPart)
    assert isinstance(module.o_proj, PackedLinear)
    for got, wanted in zip(module(x), want, strict=True):
        torch.testing.assert_close(
            got, wanted, rtol=2e-2, atol=1e-5 if dtype.itemsize == 4 else 2e-2
        )


@torch.inference_mode()
def test_a_second_input_is_never_answered_with_the_first_ones_product():
    torch.manual_seed(0)
    module = Attention()
    a, b = torch.randn(1, 3, 32), torch.randn(1, 3, 32)
    want = module.k_proj(b)
    pack_linears(module, timed=False)
    module.q_proj(a)
    torch.testing.assert_close(module.k_proj(b), want)


@torch.inference_mode()
def test_a_finished_layer_holds_neither_input_nor_product():
    module = Attention()
    pack_linears(module, timed=False)
    module(torch.randn(1, 3, 32))
    assert module.q_proj._fused._input is None
    assert module.q_proj._fused._parts == ()


@torch.inference_mode()
def test_no_rows_give_no_rows():
    assert PackedLinear(torch.randn(8, 4), None)(torch.empty(1, 0, 4)).shape == (1, 0, 8)


def test_without_the_private_operators_layers_stay_dense(monkeypatch):
    def gone(weight):
        raise AttributeError("no such operator")

    monkeypatch.setattr(packed_linear, "_reorder", gone)
    module = Attention()
    assert not packing_works(torch.float32)
    assert pack_linears(module) == 0
    assert type(module.q_proj) is nn.Linear


def test_an_operator_that_computes_something_else_is_not_used(monkeypatch):
    monkeypatch.setattr(packed_linear, "_multiply", lambda x, w, b: torch.zeros(5, 64))
    assert not packing_works(torch.float32)


def test_a_tied_head_is_packed_and_the_embedding_kept():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            self.lm_head = nn.Linear(8, 20, bias=False)
            self.lm_head.weight = self.embed.weight

    model = Tied()
    before = model.embed.weight.clone()
    pack_linears(model, timed=False)
    assert isinstance(model.lm_head, PackedLinear)
    assert torch.equal(model.embed.weight, before)
