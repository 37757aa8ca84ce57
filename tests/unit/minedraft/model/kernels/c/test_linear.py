"""Products are right, and a row has the same bits whatever is computed beside it, and by whom."""

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
SHAPES = [(48, 64), (100, 77), (33, 1537), (16, 1), (1, 600), (960, 576), (31, 33)]
"""[N, K]: whole panels, tails of both, odd K, one panel, one output."""
ROWS = [*range(1, 71), 96, 97, 130]

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.skipif(not ISAS, reason="no object for this CPU: no C compiler here"),
]


def linear(isa, dtype, threads=1):
    library = load(isa)
    return Linear(library, Pool(library, threads) if threads > 1 else None, dtype)


def weight(N, K, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(N, K, generator=generator) / K**0.5).to(dtype)


def rows(count, K, dtype, seed=1):
    return torch.randn(count, K, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(got, wanted):
    tolerance = 1e-5 if got.dtype == torch.float32 else 2**-8
    return torch.allclose(got.double(), wanted, rtol=tolerance, atol=1e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("stored_dtype", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("N", "K"), SHAPES)
def test_a_product_is_right_and_the_same_for_every_number_of_rows(isa, stored_dtype, dtype, N, K):
    maker = linear(isa, dtype)
    w, bias, x = weight(N, K, stored_dtype), rows(1, N, torch.float32)[0], rows(130, K, dtype)
    stored = maker.store(w, bias)
    whole = maker.linear(x, stored)
    assert close(whole, x.double() @ w.double().T + bias.double())
    for count in ROWS:
        assert torch.equal(maker.linear(x[-count:], stored), whole[-count:])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("stored_dtype", FLOATS)
def test_threads_do_not_change_a_bit(dtype, stored_dtype):
    w, x = weight(200, 300, stored_dtype), rows(130, 300, dtype)
    results = []
    for threads in (1, 2, 3, 5):
        maker = linear(ISAS[0], dtype, threads)
        stored = maker.store(w)
        results.append([maker.linear(x[:count], stored) for count in (1, 7, 40, 130)])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.skipif(len(ISAS) < 2, reason="one object here")
@pytest.mark.parametrize("stored_dtype", FLOATS)
def test_instruction_sets_do_not_change_a_bit(stored_dtype):
    x = rows(40, 301, torch.float32)
    results = []
    for isa in ISAS:
        maker = linear(isa, torch.float32)
        results.append(maker.linear(x, maker.store(weight(50, 301, stored_dtype))))
    assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("isa", ISAS)
def test_a_bf16_weight_counts_as_the_same_numbers_in_float32(isa):
    maker, w = linear(isa, torch.float32), weight(70, 129, torch.bfloat16)
    x = rows(20, 129, torch.float32)
    narrow, wide = maker.store(w), maker.store(w.float())
    assert torch.equal(maker.linear(x, narrow), maker.linear(x, wide))
    assert narrow.num_bytes < 0.51 * wide.num_bytes


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1, 5, 40])
def test_the_product_is_added_in_place_and_rounded_once(isa, dtype, count):
    """Whole numbers: every order of sums gives the same, and only the last rounding shows."""
    maker = linear(isa, dtype)
    w, x, bias = (8 * weight(50, 96, dtype) * 96**0.5).round(), rows(count, 96, dtype), None
    x, bias = (4 * x).round(), (16 * rows(1, 50, dtype)[0]).round()
    residual = rows(count, 50, dtype)
    exact = residual.double() + x.double() @ w.double().T + bias.double()
    into = residual.clone()
    assert maker.linear(x, maker.store(w, bias), add_to=into) is into
    assert torch.equal(into, exact.float().to(dtype))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1, 3, 8, 20, 50])
def test_slices_of_wider_rows_at_odd_addresses_are_read_and_written(isa, dtype, count):
    maker, w = linear(isa, dtype), weight(37, 45, dtype)
    stored, x = maker.store(w), rows(count, 45, dtype)
    wide_x, wide_y = torch.full((count, 61), float("nan"), dtype=dtype), rows(count, 53, dtype)
    kept = wide_y.clone()
    wide_x[:, 3:48] = x
    maker.linear(wide_x[:, 3:48], stored, out=wide_y[:, 1:38])
    assert torch.equal(wide_y[:, 1:38], maker.linear(x, stored))
    assert torch.equal(wide_y[:, 38:], kept[:, 38:])
    assert torch.equal(wide_y[:, :1], kept[:, :1])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("K", [64, 45])
def test_what_is_not_finite_stays_in_its_row(isa, dtype, K):
    maker = linear(isa, dtype)
    stored, x = maker.store(weight(40, K, torch.bfloat16)), rows(30, K, dtype)
    wanted = maker.linear(x, stored)
    for bad in (0, 13, 29):
        spoilt = x.clone()
        spoilt[bad, K - 1] = float("nan")
        spoilt[bad, 0] = float("inf")
        got = maker.linear(spoilt, stored)
        others = [row for row in range(30) if row != bad]
        assert torch.equal(got[others], wanted[others])
        assert bool(got[bad].isnan().all())


@pytest.mark.parametrize("stored_dtype", FLOATS)
def test_a_weight_of_any_strides_is_packed(stored_dtype):
    maker, w = linear(ISAS[0], torch.float32), weight(40, 50, stored_dtype)
    x = rows(3, 50, torch.float32)
    wanted = maker.linear(x, maker.store(w))
    wide = torch.zeros(40, 80, dtype=stored_dtype)
    wide[:, 7:57] = w
    for view in (wide[:, 7:57], w.T.contiguous().T, torch.nn.Parameter(w)):
        assert torch.equal(maker.linear(x, maker.store(view)), wanted)


def test_a_stored_weight_says_its_size_and_keeps_nothing_of_its_source():
    maker, w = linear(ISAS[0], torch.float32), weight(33, 64, torch.bfloat16)
    bias = torch.ones(33)
    stored, x = maker.store(w, bias), rows(2, 64, torch.float32)
    wanted = maker.linear(x, stored)
    w.zero_()
    bias.zero_()
    assert torch.equal(maker.linear(x, stored), wanted)
    assert (stored.out_features, stored.in_features) == (33, 64)
    assert stored.num_bytes == 48 * 64 * 2 + 33 * 4


@pytest.mark.parametrize("stored_dtype", FLOATS)
@pytest.mark.parametrize(("N", "K"), SHAPES)
def test_rows_come_back_as_they_were_stored(stored_dtype, N, K):
    w = weight(N, K, stored_dtype)
    w[-1, 0] = torch.nan
    stored = linear(ISAS[-1], torch.float32).store(w, rows(1, N, torch.float32)[0])
    wanted = torch.tensor([N - 1, 0, N // 2, 0])
    got = stored.rows(wanted)
    assert stored.has_rows
    assert got.dtype == stored_dtype
    assert torch.equal(got.view(torch.uint8), w[wanted].view(torch.uint8))
    assert stored.rows(torch.empty(0, dtype=torch.int64)).shape == (0, K)


def test_a_weight_of_codes_has_no_rows():
    codes, scales = torch.zeros(16, 8, dtype=torch.uint8), torch.ones(16, 1)
    stored = linear(ISAS[-1], torch.float32).store_groups(codes, scales, -scales, 8)
    assert not stored.has_rows
    with pytest.raises(StateError, match="no rows"):
        stored.rows(torch.tensor([0]))


def test_no_rows_give_no_rows():
    maker = linear(ISAS[0], torch.bfloat16)
    stored = maker.store(weight(33, 64, torch.bfloat16))
    assert maker.linear(torch.empty(0, 64, dtype=torch.bfloat16), stored).shape == (0, 33)


@pytest.mark.parametrize(
    "x",
    [torch.zeros(2, 65), torch.zeros(2, 64, dtype=torch.float64), torch.zeros(64, 2).T],
    ids=["columns", "dtype", "strides"],
)
def test_an_input_that_would_be_read_beyond_is_refused(x):
    maker = linear(ISAS[0], torch.float32)
    with pytest.raises(StateError, match="input"):
        maker.linear(x, maker.store(weight(33, 64, torch.float32)))


@pytest.mark.parametrize(
    "y", [torch.zeros(1, 33), torch.zeros(2, 32), torch.zeros(2, 33, dtype=torch.bfloat16)]
)
def test_an_output_that_would_be_written_beyond_is_refused(y):
    maker = linear(ISAS[0], torch.float32)
    stored = maker.store(weight(33, 64, torch.float32))
    with pytest.raises(StateError, match="output"):
        maker.linear(torch.zeros(2, 64), stored, out=y)
    with pytest.raises(StateError, match="output"):
        maker.linear(torch.zeros(2, 64), stored, add_to=y)


@pytest.mark.parametrize("bad", [torch.zeros(3), torch.zeros(2, 2, dtype=torch.float16)])
def test_a_weight_that_no_kernel_reads_is_refused(bad):
    with pytest.raises(StateError, match="weight"):
        linear(ISAS[0], torch.float32).store(bad)
    with pytest.raises(StateError, match="bias"):
        linear(ISAS[0], torch.float32).store(torch.zeros(2, 2), torch.zeros(3))
