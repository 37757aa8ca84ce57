from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.model import noise
from minedraft.model.noise import Stream
from tests.chi_square import assert_drawn_from

MASK = (1 << 64) - 1
U64 = st.integers(0, MASK)


def splitmix64(state: int):
    """The published generator, in its own words."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def keys(*values: int) -> torch.Tensor:
    return noise.row_keys(values, torch.device("cpu"))


def test_reference_generator_gives_its_published_first_values():
    stream = splitmix64(1234567)
    assert [next(stream) for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@settings(deadline=None)
@given(seed=U64, position=st.integers(0, 1 << 40), stream=st.sampled_from(Stream))
def test_bits_are_splitmix64_of_the_row_key(seed, position, stream):
    key = noise.row_key(seed, position, stream)
    reference = splitmix64(key & MASK)
    expected = [next(reference) >> 12 for _ in range(20)]
    assert noise.bits(keys(key), torch.arange(20)).tolist() == expected


@settings(deadline=None)
@given(seed=U64, position=st.integers(0, 1 << 40))
def test_row_key_fits_a_signed_word_and_pure_python_agrees_with_torch(seed, position):
    key = noise.row_key(seed, position, Stream.ACCEPT)
    assert -(1 << 63) <= key < 1 << 63
    in_torch = noise.uniform(keys(key), torch.tensor([0])).item()
    assert noise.uniform_at(seed, position, Stream.ACCEPT) == in_torch


def test_noise_of_a_token_does_not_depend_on_shape_or_subset():
    row = keys(*(noise.row_key(9, p) for p in range(7)))
    whole = noise.gumbel(row[:, None], torch.arange(1001)[None, :])
    generator = torch.Generator().manual_seed(0)
    for size in (1, 2, 3, 7, 64, 257, 1000):
        ids = torch.randperm(1001, generator=generator)[:size]
        for r in (0, 3, 6):
            assert torch.equal(noise.gumbel(row[r], ids), whole[r, ids])
    strided = noise.gumbel(row[:, None], torch.arange(0, 1001, 2)[None, :])
    assert torch.equal(strided, whole[:, ::2])


def test_noise_does_not_depend_on_the_number_of_threads():
    key = keys(noise.row_key(1, 2))
    alone = noise.gumbel(key, torch.arange(200_000))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(noise.gumbel(key, torch.arange(200_000)), alone)
    finally:
        torch.set_num_threads(before)


@pytest.mark.gpu
def test_noise_is_the_same_bits_on_cuda():
    key = noise.row_key(1, 2)
    here = noise.gumbel(keys(key), torch.arange(100_000))
    there = noise.row_keys([key], torch.device("cuda"))
    assert torch.equal(noise.gumbel(there, torch.arange(100_000, device="cuda")).cpu(), here)


def test_extreme_hashes_stay_finite_and_strictly_inside(monkeypatch):
    top = (1 << 52) - 1
    monkeypatch.setattr(noise, "bits", lambda _keys, ids: ids.clamp(0, top))
    u = noise.uniform(keys(0), torch.tensor([0, top]))
    assert u[0] == 2.0**-53
    assert u[1] == 1 - 2.0**-53
    e = noise._exponential(keys(0), torch.tensor([0, top]))
    assert e[0].item() == pytest.approx(2.0**-53, rel=1e-15)
    assert e[1].item() == pytest.approx(53 * math.log(2), rel=1e-15)


@pytest.mark.parametrize("hashed", [0, (1 << 52) - 1])
def test_extreme_noise_is_finite_and_within_its_bounds(monkeypatch, hashed):
    monkeypatch.setattr(noise, "bits", lambda _keys, ids: torch.full_like(ids, hashed))
    leader = hashed >> 46
    g = noise.gumbel(keys(0), torch.arange(64))
    others = g[torch.arange(64) != leader]
    assert torch.isfinite(g).all()
    assert (others < g[leader]).all()
    assert g.max() < 40.9
    if hashed == 0:
        assert g[leader].item() == pytest.approx(59 * math.log(2), rel=1e-15)
    else:
        lowest = -math.log(53 * math.log(2) * (1 + 1 / 64))
        assert others.min().item() == pytest.approx(lowest, rel=1e-14)


def test_gumbel_is_what_its_docstring_says_with_the_library_logarithm():
    key = keys(noise.row_key(3, 4))
    ids = torch.arange(50_000)
    hashed = lambda indices: -torch.log1p(-noise.uniform(key, indices))
    groups = torch.arange(50_000 // 64 + 1)
    lead = hashed((1 << 40) + 2 * groups) / 64
    leader = (noise.bits(key, (1 << 40) + 2 * groups + 1) >> 46) + 64 * groups
    exponential = torch.where(leader[ids // 64] == ids, 0.0, hashed(ids)) + lead[ids // 64]
    torch.testing.assert_close(
        noise.gumbel(key, ids), -torch.log(exponential), rtol=1e-13, atol=1e-14
    )
    assert torch.equal(noise.group_argmins(key, groups), leader)


def test_the_leader_has_the_largest_noise_of_its_group_and_its_lead_says_which():
    row = keys(*(noise.row_key(3, p) for p in range(4)))[:, None]
    groups = torch.arange(200)
    g = noise.gumbel(row, torch.arange(200 * 64)).view(4, 200, 64)
    assert torch.equal(g.argmax(-1) + 64 * groups, noise.group_argmins(row, groups))
    assert torch.equal(g.amax(-1), -noise.log(noise.group_minima(row, groups)))


def test_logarithm_is_right_over_the_whole_range():
    x = torch.cat(
        [10.0 ** torch.linspace(-300, 300, 20_001).double(), 1 - 2.0 ** -torch.arange(1, 54)]
    )
    torch.testing.assert_close(noise.log(x), torch.log(x), rtol=4e-16, atol=1e-17)


@pytest.mark.parametrize("axis", ["token", "position", "seed", "stream and token"])
def test_uniform_along_every_part_of_the_key(axis):
    n, cells = 200_000, 100
    if axis == "token":
        u = noise.uniform(keys(noise.row_key(5, 6)), torch.arange(n))
    elif axis == "stream and token":
        u = noise.uniform(keys(noise.row_key(5, 6, Stream.RESIDUAL)), torch.arange(n))
    else:
        of = (lambda i: (5, i)) if axis == "position" else (lambda i: (i, 5))
        u = noise.uniform(keys(*(noise.row_key(*of(i)) for i in range(n))), torch.tensor([17]))
    counts = torch.histc(u, cells, 0, 1).tolist()
    assert_drawn_from(counts, [1 / cells] * cells)
    low = torch.histc((u * 2**20) % 1, cells, 0, 1).tolist()  # the low bits too
    assert_drawn_from(low, [1 / cells] * cells)


@pytest.mark.parametrize("lag", ["token", "position", "seed", "stream", "far position"])
def test_neighbours_are_independent(lag):
    n, side = 60_000, 12
    ids = torch.arange(n // 100)[None, :]
    steps = range(100)

    def at(seed, position, stream=Stream.TARGET, shift=0):
        key = [noise.row_key(seed + i, position + 7 * i, stream) for i in steps]
        return noise.uniform(keys(*key)[:, None], ids + shift).flatten()

    a = at(11, 3)
    b = {
        "token": lambda: at(11, 3, shift=1),
        "position": lambda: at(11, 4),
        "seed": lambda: at(12, 3),
        "stream": lambda: at(11, 3, Stream.RESIDUAL),
        "far position": lambda: at(11, 3 + (1 << 32)),
    }[lag]()
    cell = (a * side).long() * side + (b * side).long()
    counts = torch.bincount(cell, minlength=side * side).tolist()
    assert_drawn_from(counts, [1 / side**2] * side**2)
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1].item()) < 5 / math.sqrt(n)


def test_gumbel_has_the_gumbel_distribution():
    g = noise.gumbel(keys(noise.row_key(8, 8)), torch.arange(200_000))
    counts = torch.histc(torch.exp(-torch.exp(-g)), 50, 0, 1).tolist()
    assert_drawn_from(counts, [1 / 50] * 50)


@pytest.mark.parametrize("lane", [0, 1, 37, 63])
def test_every_place_of_a_group_has_the_gumbel_distribution(lane):
    row = keys(*(noise.row_key(p, 4) for p in range(20)))[:, None]
    g = noise.gumbel(row, torch.arange(5000) * 64 + lane)
    counts = torch.histc(torch.exp(-torch.exp(-g)), 50, 0, 1).tolist()
    assert_drawn_from(counts, [1 / 50] * 50)


@pytest.mark.parametrize(("one", "other"), [(0, 1), (3, 60), (62, 63), (63, 64)])
def test_noise_of_two_tokens_of_a_group_is_independent(one, other):
    side = 12
    row = keys(*(noise.row_key(p, 4) for p in range(20)))[:, None]
    starts = torch.arange(5000) * 128
    a, b = (torch.exp(-torch.exp(-noise.gumbel(row, starts + lane))) for lane in (one, other))
    cell = (a * side).long() * side + (b * side).long()
    counts = torch.bincount(cell.flatten(), minlength=side * side).tolist()
    assert_drawn_from(counts, [1 / side**2] * side**2)


def test_largest_of_a_few_tokens_of_a_group_is_each_of_them_equally_often():
    """What a draw from a nucleus sees: a few neighbours, mostly without their group's leader."""
    row = keys(*(noise.row_key(p, 4) for p in range(20)))[:, None, None]
    ids = (torch.arange(5000) * 64)[:, None] + torch.tensor([2, 3, 5, 40])
    counts = torch.bincount(noise.gumbel(row, ids).argmax(-1).flatten(), minlength=4).tolist()
    assert_drawn_from(counts, [0.25] * 4)


def test_tail_resolves_probabilities_far_below_one_in_a_million():
    """4 million uniforms: the smallest must look like 4 million draws, not like a coarse grid."""
    w = torch.cat(
        [noise.uniform(keys(noise.row_key(2, p)), torch.arange(100_000)) for p in range(40)]
    )
    smallest = w.sort().values[:1000] * 4e6  # about 1..1000, as of a Poisson process
    counts = torch.histc(smallest / smallest[-1] * 0.9999, 10, 0, 1).tolist()
    assert_drawn_from(counts, [0.1] * 10)
    assert len(smallest.unique()) == 1000
