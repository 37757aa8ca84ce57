from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.worker.cores import parse_cores


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("", None),
        ("1", {1}),
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("2-2", {2}),
        ("1,1,0-1", {0, 1}),
    ],
)
def test_core_lists_are_read_as_taskset_writes_them(text, cores):
    assert parse_cores(text) == (None if cores is None else frozenset(cores))


@pytest.mark.parametrize("text", ["a", "1,", "-1", "1-", "1-2-3", "1;2", "0x1", ","])
def test_what_is_no_core_list_is_refused_with_what_it_was(text):
    with pytest.raises(ConfigError, match=f"cpus='{text}'"):
        parse_cores(text)


def test_a_range_that_runs_backwards_names_no_core():
    with pytest.raises(ConfigError, match="names no core"):
        parse_cores("3-1")
