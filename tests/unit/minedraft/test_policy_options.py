from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.policy_options import (
    MAX_CHARS,
    MAX_RANGES,
    PolicyOptions,
    check_policy,
    read_schedule,
)


@pytest.mark.parametrize(
    "text",
    ["[[1, 16, 4], [17, 64, 0]]", '{"1-16": 4, "17-64": 0}', '{"17-64": 0, "1-16": 4}'],
)
def test_a_schedule_has_two_forms(text):
    assert read_schedule(text) == ((1, 16, 4), (17, 64, 0))


def test_a_single_size_is_a_range():
    assert read_schedule('{"1": 5, "2-8": 3}') == ((1, 1, 5), (2, 8, 3))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "JSON"),
        ("nonsense", "JSON"),
        ("[" * 3000, "JSON"),
        ("7", "ranges"),
        ("[]", "ranges"),
        ("{}", "ranges"),
        (str([[i, i, 1] for i in range(1, MAX_RANGES + 2)]), "ranges"),
        ("[" + " " * MAX_CHARS + "]", "characters"),
        ("[[1, 16]]", "first size, last size and k"),
        ("[7]", "first size, last size and k"),
        ('{"1-x": 3}', "first size, last size and k"),
        ("[[1, 16, 2.5]]", "whole numbers"),
        ("[[1, 16, true]]", "whole numbers"),
        ('[[1, 16, "4"]]', "whole numbers"),
        ("[[16, 1, 4]]", "sizes"),
        ("[[0, 16, 4]]", "sizes"),
        ("[[1, 1025, 4]]", "sizes"),
        ("[[1, 16, 33]]", "k 0..32"),
        ("[[1, 16, -1]]", "k 0..32"),
        ("[[1, 16, 4], [16, 32, 2]]", "no overlap"),
        ('{"1-4": 4, "1-4 ": 2}', "first size, last size and k"),
        ('{"1-4": 4, "1-4": 2}', "no overlap"),
        ("[[2, 16, 4]]", "begin at 1"),
    ],
)
def test_a_schedule_is_refused_by_name_and_value(text, said):
    with pytest.raises(ConfigError, match=r"^num_speculative_tokens_per_batch_size=") as err:
        read_schedule(text)
    assert said in str(err.value)
    assert len(str(err.value)) < 300


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tetris_capacity", -1),
        ("tetris_capacity", 2**15 + 1),
        ("tetris_extra_proposals", 33),
        ("tpot_slo_ms", -1.0),
        ("tpot_slo_ms", float("nan")),
        ("num_speculative_tokens_per_batch_size", "[[2, 3, 4]]"),
    ],
)
def test_an_option_out_of_its_range_is_refused_by_name_and_value(name, value):
    with pytest.raises(ConfigError, match=f"^{name}="):
        PolicyOptions(**{name: value})


def test_a_policy_has_its_settings():
    check_policy("fixed", PolicyOptions())
    with pytest.raises(ConfigError, match="policy='wise', want one of fixed"):
        check_policy("wise", PolicyOptions())
    with pytest.raises(ConfigError, match="num_speculative_tokens_per_batch_size=''"):
        check_policy("schedule", PolicyOptions())
