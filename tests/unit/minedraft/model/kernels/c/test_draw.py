"""The kernel draws the tokens of torch's path, whatever the rows, the object and the threads."""

from __future__ import annotations

import ctypes
import math
import platform
import subprocess
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import StateError
from minedraft.model import mass, noise, sampling
from minedraft.model.draw_rows import UNDECIDED, DrawRows
from minedraft.model.kernels.c import compile as build
from minedraft.model.kernels.c.cpu import NEEDS
from minedraft.model.kernels.c.pool import Pool
from minedraft.model.sampling_row import Position, SamplingRow
from minedraft.model.scored_draw import draw_scored
from minedraft.types import RowParams
from tests.c_kernels import draw_kernel, library

DRIVER = Path(__file__).with_name("draw_driver.c")
ISAS = tuple(NEEDS)
CPU = torch.device("cpu")

pytestmark = pytest.mark.sanitized

params_strategy = st.builds(
    RowParams,
    temperature=st.sampled_from([0.0, 1e-6, 2e-5, 0.3, 0.8, 1.0, 2.0, 1e4]),
    top_k=st.sampled_from([0, 0, 0, 1, 2, 7, 64, 70, 5000, 1 << 31]),
    top_p=st.sampled_from([1.0, 1.0, 0.9999999, 0.95, 0.6, 0.1, 1e-6, 0.0]),
    min_p=st.sampled_from([0.0, 0.0, 1e-6, 0.05, 1.0]),
    seed=st.sampled_from([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]) | st.integers(0, 1 << 63),
)
position_strategy = st.sampled_from([1, 2, 200, (1 << 31) - 1, 1 << 31])


class At:
    """A position far down a row that nobody has to fill."""

    def __init__(self, params: RowParams, index: int) -> None:
        self.row, self.draft_prefix, self.index = SamplingRow(params, (1,)), (), index


def of(*params: RowParams) -> list[Position]:
    return [Position(SamplingRow(p, (1, 2, 3))) for p in params]


def kernel_draw(logits, positions, kernel) -> list[int]:
    return kernel(logits, DrawRows.of(range(len(positions)), positions, CPU)).tolist()


def check_scores(logits, positions, kernel) -> None:
    """Scored or not, tokens are the same; scores have the bits of torch's."""
    rows = DrawRows.of(range(len(positions)), positions, CPU)
    for is_surprisal in (False, True):
        tokens, scores = kernel.scored(logits, rows, is_surprisal=is_surprisal)
        expected = draw_scored(logits, positions, is_surprisal=is_surprisal)
        for token, score, want, want_score in zip(
            tokens.tolist(), scores.tolist(), *expected, strict=True
        ):
            assert token in (want, UNDECIDED)
            assert token == UNDECIDED or score == want_score


@pytest.fixture(scope="module", params=ISAS)
def kernel(request):
    return draw_kernel(request.param)


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(params_strategy, position_strategy), min_size=1, max_size=5),
    vocab_size=st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 130, 1000, 1024, 1030, 5000]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    spread=st.sampled_from([0.01, 1.0, 4.0, 60.0]),
    is_rounded=st.booleans(),
    share_masked=st.sampled_from([0.0, 0.0, 0.5, 0.99]),
    odd=st.sampled_from([None, None, None, math.nan, math.inf]),
    seed=st.integers(0, 10_000),
)
def test_tokens_are_those_of_torch(
    kernel, rows, vocab_size, dtype, spread, is_rounded, share_masked, odd, seed
):
    generator = torch.Generator().manual_seed(seed)
    shape = len(rows), vocab_size
    logits = torch.randn(shape, generator=generator) * spread
    if is_rounded:  # ties
        logits = logits.round()
    logits[torch.rand(shape, generator=generator) < share_masked] = -math.inf
    if odd is not None:
        logits[0, seed % vocab_size] = odd
    logits = logits.to(dtype)
    positions = [At(params, index) for params, index in rows]
    before = logits.clone()
    found = kernel_draw(logits, positions, kernel)
    assert found == sampling.draw(logits, positions)
    check_scores(logits, positions, kernel)
    torch.testing.assert_close(logits, before, rtol=0, atol=0, equal_nan=True)


EVERY = [
    RowParams(temperature=0.0),
    RowParams(temperature=0.8, seed=1),
    RowParams(temperature=0.8, top_p=0.95, seed=2),
    RowParams(temperature=0.8, top_p=0.5, seed=3),
    RowParams(temperature=0.7, top_k=40, seed=4),
    RowParams(temperature=0.9, top_k=100, top_p=0.9, seed=5),
    RowParams(temperature=0.9, top_k=3000, top_p=0.9, seed=6),
    RowParams(temperature=1.5, min_p=0.1, seed=7),
    RowParams(temperature=1.0, top_p=0.999, min_p=1e-4, seed=8),
]


@pytest.mark.parametrize("vocab_size", [49152, 50257])
@pytest.mark.parametrize("spread", [0.3, 2.5, 8.0])
def test_tokens_are_those_of_torch_at_full_vocabulary(kernel, vocab_size, spread):
    generator = torch.Generator().manual_seed(int(spread * 10))
    logits = (torch.randn(len(EVERY), vocab_size, generator=generator) * spread).bfloat16()
    positions = of(*EVERY)
    assert kernel_draw(logits, positions, kernel) == sampling.draw(logits, positions)
    check_scores(logits, positions, kernel)


def test_rows_are_taken_by_place_and_may_have_strides(kernel):
    wide = torch.randn(6, 600, generator=torch.Generator().manual_seed(1))
    positions = of(*[RowParams(temperature=1.0, seed=s) for s in range(8)])
    places = [5, 0, 0, 3, 2, 1, 4, 5]
    for logits in (wide[:, :500], wide.expand(6, 600), wide.t().contiguous().t(), wide[::2]):
        chosen = [p % len(logits) for p in places]
        found = kernel(logits, DrawRows.of(chosen, positions, CPU)).tolist()
        assert found == sampling.draw(logits[chosen].contiguous(), positions)
    one = wide[:1].expand(8, -1)
    assert kernel_draw(one, positions, kernel) == sampling.draw(one, positions)


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_do_not_move_a_token(threads):
    logits = torch.randn(len(EVERY), 5000, generator=torch.Generator().manual_seed(2)) * 2
    pool = Pool(library(), threads)
    try:
        parallel = draw_kernel(pool=pool)
        for _ in range(20):
            found = kernel_draw(logits, of(*EVERY), parallel)
            assert found == kernel_draw(logits, of(*EVERY), draw_kernel())
    finally:
        pool.close()


def test_a_row_that_needs_more_tries_is_left_and_drawn_by_torch():
    """With one try that is every row whose first token top-p does not keep."""
    logits = torch.randn(1, 3000, generator=torch.Generator().manual_seed(3)).expand(200, -1)
    positions = of(*[RowParams(temperature=1.0, top_p=0.6, seed=s) for s in range(200)])
    hasty = draw_kernel(tries=1)
    found = kernel_draw(logits, positions, hasty)
    expected = sampling.draw(logits, positions)
    assert 40 < found.count(UNDECIDED) < 160
    assert all(a in (b, UNDECIDED) for a, b in zip(found, expected, strict=True))
    assert sampling.draw(logits, positions, hasty) == expected


def test_scores_beyond_float32_are_left_to_torch():
    logits = torch.tensor([[3e38, 1e38, 0.0], [-3e38, -3.1e38, -math.inf]])
    positions = of(*[RowParams(temperature=2e-5, seed=s) for s in range(2)])
    assert kernel_draw(logits, positions, draw_kernel()) == [UNDECIDED] * 2
    assert sampling.draw(logits, positions, draw_kernel()) == sampling.draw(logits, positions)


@pytest.mark.parametrize("place", [-1, 2])
def test_a_place_outside_of_the_logits_is_a_bug_here(place):
    rows = DrawRows.of([0, place], of(RowParams(), RowParams()), CPU)
    with pytest.raises(StateError, match=r"places: (-1\.\.0|0\.\.2) is outside 0\.\.1"):
        draw_kernel()(torch.zeros(2, 8), rows)


@pytest.fixture(scope="module", params=ISAS)
def driver(request, tmp_path_factory):
    """The draw of an object, and the driver, in a library of their own."""
    flags = build.FLAGS[platform.machine()][library(request.param).isa]
    target = tmp_path_factory.mktemp("driver") / "driver.so"
    sources = [DRIVER, *(build.SOURCES / name for name in ("draw.c", "draw_top.c", "pool.c"))]
    compiler = build.compiler()
    if compiler is None:
        pytest.skip("no C compiler here")
    command = [*compiler, *build.COMMON, *flags, *build.LINK, "-I", build.SOURCES, *sources]
    subprocess.run([*command, "-o", target], check=True)
    return ctypes.CDLL(str(target))


def typed(function, restype, *argtypes):
    function.restype, function.argtypes = restype, argtypes
    return function


def test_noise_has_the_bits_of_torch(driver):
    pointer = ctypes.c_void_p
    drive = typed(driver.drive_noise, None, ctypes.c_uint64, *[ctypes.c_int64] * 2, *[pointer] * 2)
    found = torch.empty(64, dtype=torch.float64)
    reach = torch.empty(1)
    for seed in (0, 1, 0x9E3779B97F4A7C15, (1 << 63) + 5, (1 << 64) - 1):
        for position in (0, 1, 77, 1 << 31, (1 << 53) + 1):
            key = noise.row_keys([noise.row_key(seed, position)], CPU)
            for group in (0, 1, 767, 4095):
                drive(seed, position, group, found.data_ptr(), reach.data_ptr())
                tokens = torch.arange(64 * group, 64 * group + 64)
                assert torch.equal(found, noise.gumbel(key, tokens))
                bound = 1.0 / noise.group_minima(key, torch.tensor([group])).item()
                assert bound <= reach.item()
                assert reach.item() <= bound * 60  # useful: 64 u / -log(1 - u)


def test_weights_and_masses_have_the_bits_of_torch(driver):
    pointer = ctypes.c_void_p
    drive = typed(driver.drive_masses, ctypes.c_int64, pointer, ctypes.c_int64, pointer)
    generator = torch.Generator().manual_seed(4)
    for scale in (1e-6, 0.3, 5.0, 45.0, 1e30):
        scores = torch.rand(1 << 16, generator=generator) * -scale
        scores[:3] = torch.tensor([0.0, -0.0, -math.inf])
        found = torch.empty_like(scores)
        total = drive(scores.data_ptr(), len(scores), found.data_ptr())
        assert torch.equal(found, mass.weights(scores))
        assert total == int(mass.totals(scores[None]))


def test_every_vocabulary_size_has_its_edge(driver):
    assert typed(driver.drive_edges, ctypes.c_int64, ctypes.c_int64)(270) == 0
