"""The torch maker against transformers' own formulas in fp64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from minedraft.model.attention import AttentionOptions
from minedraft.model.batch import RowInput
from minedraft.model.kernels import torch_maker
from minedraft.model.kernels.interface import Activation, Heads, Rope
from minedraft.model.kernels.torch_maker import TorchKernels, packing_works
from minedraft.model.kv_pool import KVPool, LayerGeometry
from minedraft.model.step_meta import plan_step

DTYPES = (torch.float32, torch.bfloat16)


def close(got, want):
    loose = got.dtype == torch.bfloat16
    torch.testing.assert_close(
        got.double(), want, rtol=2e-2 if loose else 1e-5, atol=5e-2 if loose else 1e-5
    )


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("stored_as", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_product_of_any_weight_is_right(dtype, stored_as, rows):
    kernels = TorchKernels(dtype)
    x, weight, bias = torch.randn(rows, 33), torch.randn(20, 33), torch.randn(20)
    x, weight, bias = x.to(dtype), weight.to(stored_as), bias.to(stored_as)
    stored = kernels.store(weight, bias)
    want = F.linear(x.double(), weight.double(), bias.double())
    assert (stored.out_features, stored.in_features) == (20, 33)
    assert stored.num_bytes == (20 * 33 + 20) * dtype.itemsize
    close(kernels.linear(x, stored), want)
    residual = torch.randn(rows, 20).to(dtype)
    wanted = residual.double() + want
    assert kernels.linear(x, stored, add_to=residual) is residual
    close(residual, wanted)
    out = torch.empty(rows, 20, dtype=dtype)
    assert kernels.linear(x, stored, out=out) is out
    close(out, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("plus_one", [False, True])
def test_norms_are_rms_norms(dtype, plus_one):
    kernels = TorchKernels(dtype)
    x, residual, weight = torch.randn(5, 24), torch.randn(5, 24), torch.randn(24)
    x, residual = x.to(dtype), residual.to(dtype)

    def norm(values):
        wide = values.double()
        scale = weight.double() + plus_one
        return wide * (wide.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * scale

    close(kernels.norm(x, weight, 1e-5, plus_one=plus_one), norm(x))
    total = (residual.double() + x.double()).to(dtype)
    close(kernels.add_norm(x, residual, weight, 1e-5, plus_one=plus_one), norm(total))
    close(residual, total.double())
    heads = torch.randn(5, 4, 24).to(dtype)
    want = norm(heads[:, 1:3])
    kernels.norm_heads(heads[:, 1:3], weight, 1e-5, plus_one=plus_one)
    close(heads[:, 1:3], want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("activation", "own"),
    [(Activation.SILU, F.silu), (Activation.GELU_TANH, lambda x: F.gelu(x, approximate="tanh"))],
)
def test_a_gate_multiplies_what_goes_up(dtype, activation, own):
    gate_up = torch.randn(5, 48).to(dtype)
    gate, up = gate_up.double().chunk(2, -1)
    close(TorchKernels(dtype).act_mul(gate_up, activation), own(gate) * up)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("half", [4, 8])
def test_queries_and_keys_turn_and_what_is_not_rotary_stays(dtype, half):
    heads = Heads(num_query_heads=4, num_kv_heads=2, head_dim=16)
    pool = KVPool(
        [LayerGeometry(2, 16, 16)], num_blocks=4, block_size=4, dtype=dtype,
        device=torch.device("cpu"),
    )  # fmt: skip
    step = plan_step([RowInput([1] * 3, 2, [3, 1], 1)], block_size=4, device=torch.device("cpu"))
    qkv = torch.randn(3, 8 * 16).to(dtype)
    angles = torch.randn(3, half)
    rope = Rope(angles.cos(), angles.sin())
    before = qkv.double().view(3, 8, 16)
    first, second = before[..., :half], before[..., half : 2 * half]
    cos, sin = rope.cos.double()[:, None], rope.sin.double()[:, None]
    turned = torch.cat(
        [first * cos - second * sin, second * cos + first * sin, before[..., 2 * half :]], -1
    )
    kernels = TorchKernels(dtype)
    kernels.rope_write(qkv, rope, pool, 0, step, heads=heads)
    close(qkv.view(3, 8, 16)[:, :4], turned[:, :4])
    keys, values = pool.gather(0, torch.tensor([6, 2, 7, 3]), 1, 2)
    close(keys[0, :, 2:5].transpose(0, 1), turned[:, 4:6])
    close(values[0, :, 2:5].transpose(0, 1), before[:, 6:])
    query = qkv.view(3, 8, 16)[:, :4]
    # Only positions 2 to 4 lie in the window, so what is not written is not seen.
    got = kernels.attend(query, pool, 0, step, AttentionOptions(0.25, sliding_window=1))
    close(got.view(3, 4, 16), before[:, 6:].repeat_interleave(2, 1))


def test_without_the_private_operators_weights_stay_dense(monkeypatch):
    def gone(weight):
        raise AttributeError("no such operator")

    monkeypatch.setattr(torch_maker, "_reorder", gone)
    packing_works.cache_clear()
    assert not packing_works(torch.float32)
    kernels, x, weight = TorchKernels(torch.float32), torch.randn(2, 4), torch.randn(3, 4)
    assert torch.equal(kernels.linear(x, kernels.store(weight)), F.linear(x, weight))
    packing_works.cache_clear()


def test_an_operator_that_computes_something_else_is_not_used(monkeypatch):
    monkeypatch.setattr(torch_maker, "_multiply", lambda x, w, b: torch.zeros(5, 64))
    packing_works.cache_clear()
    assert not packing_works(torch.float32)
    packing_works.cache_clear()
