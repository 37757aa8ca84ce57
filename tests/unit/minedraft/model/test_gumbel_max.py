from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.model import gumbel_max, noise

CPU = torch.device("cpu")


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([0.0, 1.0, 8.0, 60.0]))
def test_candidates_hold_the_largest_perturbed_score(seed, spread):
    scores = torch.randn(3, 8192, generator=torch.Generator().manual_seed(seed)) * spread
    scores -= scores.amax(-1, keepdim=True)
    keys = noise.row_keys([noise.row_key(seed, p) for p in range(3)], scores.device)
    whole = (scores.double() + noise.gumbel(keys[:, None], torch.arange(8192))).argmax(-1)
    entries = gumbel_max.candidates(scores, keys)
    assert torch.equal(gumbel_max.argmax_perturbed(entries, keys), whole)
    assert len(entries.rows) < scores.numel() / 10


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.lists(st.sampled_from([1, 2, 50, 2000]), min_size=1, max_size=4),
    spread=st.sampled_from([0.0, 1.0, 20.0]),
)
def test_a_draw_by_weights_is_the_largest_perturbed_score(seed, sizes, spread):
    generator = torch.Generator().manual_seed(seed)
    keys = noise.row_keys([noise.row_key(seed, p) for p in range(len(sizes))], CPU)
    rows = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    ids = torch.cat([torch.randperm(5000, generator=generator)[:n] for n in sizes])
    weights = (torch.randn(len(rows), generator=generator).double() * spread).exp()
    weights[torch.rand(len(rows), generator=generator) < 0.3] = 0.0
    weights[torch.tensor(sizes).cumsum(0) - 1] = 1e-3  # at least one positive per row
    noisy = weights.log() + noise.gumbel(keys[rows], ids)
    expected = [int(ids[rows == r][noisy[rows == r].argmax()]) for r in range(len(sizes))]
    assert gumbel_max.draw_by_weight(rows, ids, weights, keys).tolist() == expected


def test_argmax_takes_the_first_of_equals():
    for width in (64, 65, 640):
        values = torch.zeros(2, width)
        values[1, [width - 1, 7]] = 1.0
        ids, best = gumbel_max.argmax(values)
        assert (ids.tolist(), best.tolist()) == ([0, 7], [0.0, 1.0])
