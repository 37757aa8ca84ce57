"""Norms and activations: transformers' own numbers, and the same bits on every instruction set."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from minedraft.errors import StateError
from minedraft.model.kernels.c import compile as build
from minedraft.model.kernels.c.cpu import flags_here, runnable
from minedraft.model.kernels.c.elementwise import Elementwise
from minedraft.model.kernels.c.library import load
from minedraft.model.kernels.c.pool import Pool
from minedraft.model.kernels.interface import Activation

ISAS = [isa for isa in runnable(flags_here()) if build.object_path(isa).exists()]
FLOATS = (torch.float32, torch.bfloat16)
WIDTHS = (576, 64, 80, 1537, 20, 1)
ACTIVATIONS = {
    Activation.SILU: F.silu,
    Activation.GELU_TANH: lambda x: F.gelu(x, approximate="tanh"),
}
DRIVER = Path(__file__).with_name("vec_driver.c")

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.skipif(not ISAS, reason="no object for this CPU: no C compiler here"),
]


def kernels(dtype=torch.float32, isa=None, threads=1):
    library = load(ISAS[0] if isa is None else isa)
    return Elementwise(library, Pool(library, threads) if threads > 1 else None, dtype)


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_equals(got, own, wanted):
    """As transformers rounds in bf16; in fp32 as near to fp64 as an order of sums allows."""
    if got.dtype == torch.bfloat16:
        assert (got != own).float().mean() < 0.02
        torch.testing.assert_close(got, own, rtol=2**-7, atol=1e-5)
    else:
        torch.testing.assert_close(got.double(), wanted, rtol=2e-6, atol=1e-6)


def own_norm(x, weight, plus_one):
    norm = (Gemma2RMSNorm if plus_one else LlamaRMSNorm)(x.shape[-1], eps=1e-5).to(x.dtype)
    norm.weight.data = weight.to(x.dtype)
    with torch.no_grad():
        return norm(x)


def exact_norm(x, weight, plus_one):
    wide = x.double()
    scale = (wide.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()
    return wide * scale * (weight.double() + plus_one)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("plus_one", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_norm_is_the_models_own(dtype, isa, plus_one, width):
    x, weight = random(9, width, dtype=dtype), random(width, dtype=dtype, seed=1).float()
    own, wanted = own_norm(x, weight, plus_one), exact_norm(x, weight, plus_one)
    maker = kernels(dtype, isa)
    got = maker.norm(x, weight, 1e-5, plus_one=plus_one)
    assert_equals(got, own, wanted)
    for rows in range(9):  # a row alone, or beside others
        assert torch.equal(maker.norm(x[rows:], weight, 1e-5, plus_one=plus_one), got[rows:])
    wide = torch.zeros(9, width + 3, dtype=dtype)
    wide[:, :width] = x
    part = wide[:, :width]
    assert maker.norm(part, weight, 1e-5, plus_one=plus_one, out=part) is part
    assert torch.equal(part, got)
    assert not wide[:, width:].any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_added_first_is_normed(dtype, width):
    maker, weight = kernels(dtype), random(width, seed=1)
    x, residual = (
        random(5, 2 * width, dtype=dtype)[:, :width],
        random(5, width, dtype=dtype, seed=2),
    )
    total = residual + x
    wanted = maker.norm(total, weight, 1e-5)
    assert torch.equal(maker.add_norm(x, residual, weight, 1e-5), wanted)
    assert torch.equal(residual, total)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [64, 128, 24])
def test_heads_are_normed_each_by_itself_in_place(dtype, dim):
    qkv, weight = random(6, 5 * dim, dtype=dtype), random(dim, seed=1)
    before, maker = qkv.clone().view(6, 5, dim), kernels(dtype)
    heads = qkv.view(6, 5, dim)[:, 1:4]
    maker.norm_heads(heads, weight, 1e-6, plus_one=True)
    for head in range(1, 4):
        wanted = maker.norm(before[:, head], weight, 1e-6, plus_one=True)
        assert torch.equal(heads[:, head - 1], wanted)
    assert torch.equal(qkv.view(6, 5, dim)[:, ::4], before[:, ::4])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("width", [*WIDTHS, 1024])
def test_a_gate_multiplies_what_goes_up(dtype, isa, activation, width):
    gate_up = random(7, 2 * width, dtype=dtype) * 4
    gate, up = gate_up.chunk(2, -1)
    own = ACTIVATIONS[activation]
    maker = kernels(dtype, isa)
    got = maker.act_mul(gate_up, activation)
    assert_equals(got, own(gate) * up, own(gate.double()) * up.double())
    for rows in range(7):
        assert torch.equal(maker.act_mul(gate_up[rows:], activation), got[rows:])


@pytest.mark.parametrize("dtype", FLOATS)
def test_threads_and_instruction_sets_give_the_same_bits(dtype):
    x, weight, gate_up = random(50, 2000, dtype=dtype), random(2000), random(30, 3000, dtype=dtype)

    def outputs(isa, threads):
        maker = kernels(dtype, isa, threads)
        gated = [maker.act_mul(gate_up, activation) for activation in Activation]
        return torch.cat([x.flatten() for x in (maker.norm(x, weight, 1e-5), *gated)])

    wanted = outputs(ISAS[-1], 1)
    for isa in ISAS:
        for threads in (1, 2, 3):
            assert torch.equal(outputs(isa, threads), wanted)


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("place", [0, 17])
def test_nan_and_infinity_stay_where_they_are(activation, place):
    maker, gate_up = kernels(), random(3, 40)
    wanted = maker.act_mul(gate_up, activation)
    for bad in (torch.nan, torch.inf, -torch.inf):
        gate_up[1, place] = bad
        got = maker.act_mul(gate_up, activation)
        own = ACTIVATIONS[activation](gate_up[:, :20]) * gate_up[:, 20:]
        assert torch.equal(got[1].isfinite(), own[1].isfinite())
        assert torch.equal(got[::2], wanted[::2])
    x = random(3, 40)
    x[1, place] = torch.nan
    assert maker.norm(x, torch.ones(40), 1e-5).isnan().all(-1).tolist() == [False, True, False]


def test_what_would_be_read_beyond_is_refused():
    maker, x, weight = kernels(), random(4, 32), random(32)
    for call, said in [
        (lambda: maker.norm(x.double(), weight, 1e-5), "norm of"),
        (lambda: maker.norm(x.T, weight[:4], 1e-5), "norm of"),
        (lambda: maker.norm(x, weight[1:], 1e-5), "weight"),
        (lambda: maker.norm(x, weight.bfloat16(), 1e-5), "weight"),
        (lambda: maker.norm(x, weight, 1e-5, out=x[1:]), "output"),
        (lambda: maker.add_norm(x, x[1:], weight, 1e-5), "output"),
        (lambda: maker.add_norm(x, random(4, 64)[:, :32], weight, 1e-5), "residual"),
        (lambda: maker.add_norm(x.T, x.clone(), weight, 1e-5), "norm of"),
        (lambda: maker.norm_heads(x.view(4, 2, 16).mT, weight[:2], 1e-5), "norm of"),
        (lambda: maker.act_mul(x[:, 1:], Activation.SILU), "gate and up"),
        (lambda: maker.act_mul(x, Activation.SILU, out=x[:, :16]), "not contiguous"),
        (lambda: maker.act_mul(x, Activation.SILU, out=x), "output"),
    ]:
        with pytest.raises(StateError, match=said):
            call()


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """The driver of vec.h for each instruction set, without the kernels."""
    command, folder = build.compiler(), tmp_path_factory.mktemp("vec")
    if command is None:
        pytest.skip("no C compiler here")
    made = {}
    for isa in ISAS:
        flags, target = build.FLAGS[platform.machine()][isa], folder / f"{isa}.so"
        call = [*command, *build.COMMON, *flags, f"-I{build.SOURCES}", *build.LINK]
        subprocess.run([*call, str(DRIVER), "-o", str(target)], check=True)
        made[isa] = ctypes.CDLL(str(target))
    return made


def drive(library, x):
    """exp, tanh, and the bf16 of `x` by vectors and by scalars."""
    outputs = [np.empty(x.shape, kind) for kind in (np.float32, np.float32, np.uint16, np.uint16)]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, *outputs)]
    assert library.drive_vec(*pointers, ctypes.c_int64(x.size)) == 0
    return outputs


def ulps(got, wanted):
    return np.abs(got - wanted) / np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)


def test_exp_and_tanh_are_within_two_ulps_and_have_the_same_bits_everywhere(driven):
    # Every sign, exponent and a few hundred mantissas: NaN, infinities and denormals among them.
    x = np.arange(0, 1 << 32, 16 * 1237 + 3, dtype=np.uint64).astype(np.uint32)
    dense = np.linspace(-90, 90, 1 << 16, dtype=np.float32)
    x = np.concatenate([x[: x.size // 16 * 16].view(np.float32), dense])
    results = [drive(library, x) for library in driven.values()]
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            assert np.array_equal(a, b, equal_nan=a.dtype == np.float32)
    exps, tanhs, halves, scalars = results[0]
    nan = np.isnan(x)
    assert np.isnan(exps[nan]).all()
    assert np.isnan(tanhs[nan]).all()
    with np.errstate(all="ignore"):
        wanted = np.exp(x.astype(np.float64))
        inner = (x > -86.5) & (x < 88.7228)
        assert ulps(exps[inner], wanted[inner]).max() < 1
        assert (exps[x < -86.7] == 0).all()
        assert np.isinf(exps[x > 88.73]).all()
        wanted = np.tanh(x.astype(np.float64))
        inner = ~nan & (np.abs(x) > 1e-37)
        assert ulps(tanhs[inner], wanted[inner]).max() < 2
    assert np.array_equal(halves, scalars)
    rounded = torch.from_numpy(x).bfloat16()
    got = torch.from_numpy(halves.view(np.int16)).view(torch.bfloat16)
    assert torch.equal(got[~nan], rounded[~nan])
    assert got[nan].isnan().all()


def test_lanes_are_summed_by_one_tree_and_chosen_by_range(driven):
    x = (1 / np.arange(3, 19)).astype(np.float32)
    halves = [x]
    while halves[-1].size > 1:
        size = halves[-1].size // 2
        halves.append(halves[-1][:size] + halves[-1][size:])
    for library in driven.values():
        for first in range(17):
            for last in range(17):
                values = np.empty(2, np.float32), np.empty(16, np.float32)
                assert library.drive_lanes(
                    ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(first), ctypes.c_int64(last),
                    ctypes.c_void_p(values[0].ctypes.data),
                    ctypes.c_void_p(values[0].ctypes.data + 4),
                    ctypes.c_void_p(values[1].ctypes.data),
                ) == 0  # fmt: skip
                assert values[0].tolist() == [halves[-1][0], x[0]]
                lanes = np.arange(16)
                assert np.array_equal(values[1], np.where((lanes >= first) & (lanes < last), -x, x))
