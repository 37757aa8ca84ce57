from __future__ import annotations

import math

import pytest

from minedraft.capacity.known_models import model_of
from minedraft.capacity.question import Slo, rates_of, slo_of
from minedraft.errors import ConfigError
from tests.capacity_world import ask, drafter


def test_rates_are_read():
    assert rates_of("8") == (8.0, 8.0)
    assert rates_of("2..40") == (2.0, 40.0)


@pytest.mark.parametrize("text", ["", "x", "40..2", "0", "1..", "..", "2..1e9", "nan", "1..inf"])
def test_other_rates_are_refused(text):
    with pytest.raises(ConfigError, match=r"^rate="):
        rates_of(text)


def test_rates_go_from_the_lowest_to_the_highest():
    rates = ask(rate=(2.0, 32.0)).rates
    assert rates == pytest.approx((2, 4, 8, 16, 32))
    assert rates[-1] == 32
    assert ask(rate=(3.0, 3.0)).rates == (3.0,)


def test_an_slo_is_read():
    assert slo_of("") == Slo(math.inf, math.inf)
    assert slo_of("tpot=40") == Slo(40.0)
    assert slo_of("tpot=40, ttft=1000") == Slo(40.0, 1000.0)


@pytest.mark.parametrize("text", ["40", "tpot", "tpot=0", "tpot=x", "e2e=4", "tpot=nan"])
def test_another_slo_is_refused(text):
    with pytest.raises(ConfigError, match=r"^slo"):
        slo_of(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": (0.0, 1.0)}, "rate=0: want"),
        ({"rate": (1.0, 1e9)}, "rate=1e"),
        ({"prompt_tokens": 0}, "prompt tokens=0"),
        ({"output_tokens": 1}, "output tokens=1"),
        ({"prompt_tokens": 40_000, "output_tokens": 2_000}, "context=42000: want 1..40960"),
        ({"context": 100}, "context=100: want at least prompt and output, 512 [+] 256"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"hop_ms": -1}, "hop ms=-1"),
        ({"launch": "lazy"}, "launch='lazy': want one of eager, graphs"),
        ({"drafters": ("0.6B",) * 9}, "at most 8, not 9"),
    ],
)
def test_what_is_out_of_range_is_refused_with_field_and_value(options, message):
    with pytest.raises(ConfigError, match=message):
        ask(**options)


def test_a_drafter_with_another_vocabulary_is_refused():
    from dataclasses import replace

    other = replace(drafter(), name="1B", shape=model_of("Llama-3.2-1B"))
    with pytest.raises(ConfigError, match="drafters='1B': its vocabulary has 128256 tokens"):
        ask(drafters=(other,))
