"""Weights of codes in groups: their products are those of the numbers, to the bit."""

from __future__ import annotations

import pytest
import torch

from minedraft.errors import StateError
from minedraft.model.kernels.c import compile as build
from minedraft.model.kernels.c.cpu import flags_here, runnable
from minedraft.model.kernels.c.library import load
from minedraft.model.kernels.c.linear import Linear
from minedraft.model.kernels.c.pool import Pool

ISAS = [isa for isa in runnable(flags_here()) if build.object_path(isa).exists()]
FLOATS = (torch.float32, torch.bfloat16)

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.skipif(not ISAS, reason="no object for this CPU: no C compiler here"),
]


def grouped(N, K, group, bits, seed=0):
    """Codes, scales and offsets; the scales have 11 bits, as float16 has."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 1 << bits, (N, K), generator=generator, dtype=torch.uint8)
    scales = torch.rand(N, K // group, generator=generator).half().float() / (K**0.5 * 2**bits)
    zeros = torch.randint(0, 1 << bits, scales.shape, generator=generator)
    return codes, scales, -zeros * scales


def packed(codes, bits):
    return codes if bits == 8 else codes[:, 0::2] | (codes[:, 1::2] << 4)


def dense(codes, scales, offsets):
    N, groups = scales.shape
    wide = codes.view(N, groups, -1).double() * scales[..., None] + offsets[..., None]
    return wide.float().view(N, -1)


def rows(count, K, dtype, seed=1):
    return torch.randn(count, K, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("N", "K", "group"),
    [(48, 128, 32), (50, 384, 64), (33, 640, 128), (16, 40, 8), (20, 1096, 1096), (100, 288, 96)],
)
def test_products_are_those_of_the_numbers_to_the_bit(isa, bits, N, K, group):
    maker = Linear(load(isa), None, torch.float32)
    codes, scales, offsets = grouped(N, K, group, bits)
    bias, x = rows(1, N, torch.float32)[0], rows(130, K, torch.float32)
    stored = maker.store_groups(packed(codes, bits), scales, offsets, bits, bias)
    same = maker.store(dense(codes, scales, offsets), bias)
    for count in (*range(1, 41), 64, 97, 130):
        assert torch.equal(maker.linear(x[-count:], stored), maker.linear(x[-count:], same))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", [4, 8])
def test_bf16_rows_give_rounded_products_the_same_for_every_number_of_rows(isa, bits):
    maker, wide = (Linear(load(isa), None, dtype) for dtype in (torch.bfloat16, torch.float32))
    codes, scales, offsets = grouped(50, 384, 32, bits)
    stored = maker.store_groups(packed(codes, bits), scales, offsets, bits)
    x = rows(100, 384, torch.bfloat16)
    wanted = wide.linear(x.float(), stored).to(torch.bfloat16)
    for count in (1, 2, 5, 12, 13, 40, 100):
        assert torch.equal(maker.linear(x[:count], stored), wanted[:count])


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_do_not_change_a_bit(threads):
    library = load(ISAS[0])
    one = Linear(library, None, torch.float32)
    many = Linear(library, Pool(library, threads), torch.float32)
    codes, scales, offsets = grouped(100, 256, 64, 4)
    x, arguments = rows(40, 256, torch.float32), (packed(codes, 4), scales, offsets, 4)
    wanted = one.linear(x, one.store_groups(*arguments))
    assert torch.equal(many.linear(x, many.store_groups(*arguments)), wanted)


def test_four_bits_in_groups_of_128_take_less_than_a_third_of_bf16():
    maker = Linear(load(ISAS[0]), None, torch.float32)
    codes, scales, offsets = grouped(64, 1024, 128, 4)
    stored = maker.store_groups(packed(codes, 4), scales, offsets, 4)
    assert (stored.out_features, stored.in_features) == (64, 1024)
    assert stored.num_bytes < 0.3 * maker.store(torch.zeros(64, 1024).bfloat16()).num_bytes


@pytest.mark.parametrize(
    ("codes", "scales", "offsets", "bits"),
    [
        (torch.zeros(4, 32), torch.ones(4, 1), torch.ones(4, 1), 8),
        (torch.zeros(4, 32).byte(), torch.ones(4, 1), torch.ones(4, 1), 2),
        (torch.zeros(4, 32).byte(), torch.ones(4, 1).half(), torch.ones(4, 1), 8),
        (torch.zeros(4, 32).byte(), torch.ones(4, 1), torch.ones(4, 2), 8),
        (torch.zeros(4, 32).byte(), torch.ones(3, 1), torch.ones(3, 1), 8),
        (torch.zeros(4, 32).byte(), torch.ones(4, 3), torch.ones(4, 3), 8),
        (torch.zeros(4, 20).byte(), torch.ones(4, 1), torch.ones(4, 1), 8),
        (torch.zeros(4, 0).byte(), torch.ones(4, 0), torch.ones(4, 0), 8),
    ],
    ids=["floats", "bits", "half", "offsets", "outputs", "groups", "group of 20", "nothing"],
)
def test_what_does_not_fit_together_is_refused(codes, scales, offsets, bits):
    with pytest.raises(StateError, match=r"codes|scales"):
        Linear(load(ISAS[0]), None, torch.float32).store_groups(codes, scales, offsets, bits)
