from __future__ import annotations

import math
import struct

import numpy as np
import pytest
import torch

from minedraft.model import mass


def scores_of(count: int, lowest: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.rand(count, generator=generator) * lowest


def one_weight(score: float) -> float:
    """The definition, one rounding after the other."""
    f32 = np.float32
    power = max(f32(score) * f32(1.44269502), f32(-60.0))
    whole = f32(round(float(power)))  # ties to even
    fraction = power - whole
    result = f32(float.fromhex("0x1.5bba1p-10"))
    for x in ("0x1.3cea88p-7", "0x1.c6b752p-5", "0x1.ebf9bcp-3", "0x1.62e42ap-1", "0x1p+0"):
        result = result * fraction + f32(float.fromhex(x))
    return math.ldexp(float(result), int(whole))


def test_weights_are_their_definition_to_the_bit():
    scores = torch.cat([scores_of(3000, -45.0), torch.tensor([0.0, -0.0, -1e-30, -math.inf])])
    assert mass.weights(scores).tolist() == [one_weight(x) for x in scores.tolist()]


def test_weights_are_near_the_exponential():
    scores = scores_of(200_000, -41.0)
    error = (mass.weights(scores).double() / scores.double().exp() - 1).abs()
    assert bool((error <= (2 + scores.double().abs()) * 1e-7).all())
    assert mass.weights(torch.zeros(1)).item() == 1.0


def test_what_cannot_matter_weighs_nothing():
    scores = torch.tensor([-29.0, -41.7, -1000.0, -torch.finfo(torch.float32).max, -math.inf])
    assert mass.masses(scores).tolist() == [0] * 5
    assert mass.masses(torch.tensor([0.0])).tolist() == [1 << 40]


def test_masses_round_to_the_nearest_unit_and_ties_to_even():
    scores = scores_of(5000, -30.0)
    exact = [x * 2.0**40 for x in mass.weights(scores).tolist()]
    assert mass.masses(scores).tolist() == [round(x) for x in exact]


@pytest.mark.parametrize("width", [1, 64, 5000, 200_000])
def test_totals_are_exact_sums(width):
    scores = scores_of(3 * width, -30.0).view(3, width)
    scores[1] = 0.0
    expected = [sum(mass.masses(row).tolist()) for row in scores]
    assert mass.totals(scores).tolist() == expected
    assert mass.totals(scores[2:]).tolist() == expected[2:]


def test_the_bits_do_not_depend_on_where_a_score_stands():
    """Library exponentials have another last place in the tail of a tensor than in its body."""
    scores = scores_of(999, -40.0)
    whole = mass.weights(scores)
    for first in range(0, 40, 3):
        assert torch.equal(mass.weights(scores[first:]), whole[first:])
    alone = torch.cat([mass.weights(x[None]) for x in scores])
    assert torch.equal(alone, whole)


def test_some_weights_as_they_have_been_ever_since():
    """Drafter and verifier may run different versions: a change would cost them agreement."""
    scores = torch.tensor([-0.1, -0.5, -1.0, -2.5, -7.77, -20.0])
    found = [struct.pack(">f", x).hex() for x in mass.weights(scores).tolist()]
    assert found == ["3f67a36c", "3f1b4597", "3ebc5ab2", "3da81c2f", "39dd5c7e", "310da431"]
