from __future__ import annotations

import pytest

from minedraft.capacity.acceptance import assumed, given, tokens_per_step
from minedraft.capacity.known_models import model_of
from minedraft.capacity.model_shape import ModelShape
from minedraft.errors import ConfigError


def of_size(billions):
    """A model of so many weights: nearly all of them in its layers."""
    layers = round(billions * 1e9 / (4 * 1024**2 + 3 * 1024 * 4096))
    return ModelShape("x", 1024, 4096, layers, 8, 8, 128, 16, is_tied=True, max_len=4096)


@pytest.mark.parametrize(
    ("billions", "greedy", "sampled"), [(8, 0.75, 0.74), (2, 0.71, 0.71), (0.1, 0.61, 0.57)]
)
def test_the_curve_meets_its_source(billions, greedy, sampled):
    found = assumed(of_size(billions), of_size(137))
    assert found == pytest.approx((greedy + sampled) / 2, abs=0.02)


def test_a_larger_drafter_is_accepted_more_often_and_never_always():
    target = model_of("Qwen3-32B")
    rates = [assumed(model_of(name, target.name), target) for name in ("0.6B", "1.7B", "8B", "32B")]
    assert rates == sorted(rates)
    assert rates[-1] < 1


@pytest.mark.parametrize(("rate", "k"), [(0.0, 4), (0.7, 4), (1.0, 4), (0.7, 0)])
def test_tokens_are_the_sum_of_survivals(rate, k):
    assert tokens_per_step(rate, k) == pytest.approx(sum(rate**depth for depth in range(k + 1)))


def test_given_rates_are_read():
    assert given(["a=0.5,b=0.25", "c=1"], "abc") == {"a": 0.5, "b": 0.25, "c": 1.0}
    assert given([], "a") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "want DRAFTER=RATE"),
        ("z=0.5", "'z' is none of the drafters a, b"),
        ("a=1.5", "acceptance of a='1.5': want 0..1"),
        ("a=x", "want a number"),
    ],
)
def test_other_ones_are_refused_by_name(text, message):
    with pytest.raises(ConfigError, match=message):
        given([text], "ab")
