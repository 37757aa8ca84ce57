from __future__ import annotations

import pytest

from minedraft.capacity.words import number_in, short
from minedraft.errors import ConfigError


@pytest.mark.parametrize(("text", "value"), [("1", 1.0), ("0.5", 0.5), ("1e2", 100.0)])
def test_a_number_within_bounds_is_read(text, value):
    assert number_in("x", text, 0.5, 100) == value


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-1", "101", "0.4"])
def test_another_one_is_refused_with_field_and_value(text):
    with pytest.raises(ConfigError, match=f"^x='{text}': want"):
        number_in("x", text, 0.5, 100)


def test_a_long_value_is_cut_and_steers_no_terminal():
    assert short("a" * 100) == repr("a" * 60) + "..."
    assert "\x1b" not in short("\x1b[2J")
