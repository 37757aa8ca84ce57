from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.services.verifier.config import VerifierConfig
from minedraft.services.verifier.rank_cores import rank_cores, refuse_unusable


@pytest.mark.parametrize(
    ("cpus", "size", "wanted"),
    [
        ("", 3, [None, None, None]),
        ("1", 1, [{1}]),
        ("0-3", 1, [{0, 1, 2, 3}]),
        ("0-3", 2, [{0, 1}, {2, 3}]),
        ("6,0,4,2", 2, [{0, 2}, {4, 6}]),
        ("0;1", 2, [{0}, {1}]),
        ("0-3; 8", 2, [{0, 1, 2, 3}, {8}]),
        ("0;1;0;1", 4, [{0}, {1}, {0}, {1}]),
    ],
)
def test_cores_of_each_rank(cpus, size, wanted):
    assert rank_cores(cpus, size) == wanted


@pytest.mark.parametrize(
    ("cpus", "size", "said"),
    [
        ("0-2", 2, "3 cores cannot be split over tp_size=2"),
        ("0", 2, "1 cores cannot be split"),
        ("0;1", 1, "tp_size=1"),
        ("0;1", 3, "tp_size=3"),
        ("0;", 2, "tp_size=2"),
        ("0;x", 2, "'x'"),
    ],
)
def test_cores_that_do_not_fit_the_ranks_are_refused(cpus, size, said):
    with pytest.raises(ConfigError, match=said):
        VerifierConfig(model="m", cpus=cpus, tp_size=size)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tp_size": 0}, "tp_size=0"),
        ({"tp_timeout_s": 0.0}, "tp_timeout_s=0.0"),
        ({"tp_size": 2, "device": "cuda:1"}, "cuda:1"),
    ],
)
def test_settings_of_ranks_are_checked(options, said):
    with pytest.raises(ConfigError, match=said):
        VerifierConfig(model="m", **options)


@pytest.mark.parametrize(
    ("cpus", "said"),
    [("0;7", r"cpus='0;7': rank 1 of 2 cannot use cores \[7\]; usable are \[0, 1\]"),
     ("0-3", r"cpus='0-3': rank 1 of 2 cannot use cores \[2, 3\]"),
     ("8-9", r"rank 0 of 2 cannot use cores \[8\]")],
)  # fmt: skip
def test_cores_that_are_not_there_are_refused_with_their_rank(cpus, said):
    with pytest.raises(ConfigError, match=said):
        refuse_unusable(cpus, rank_cores(cpus, 2), {0, 1})


@pytest.mark.parametrize("cpus", ["", "0-1", "1;0", "0;0"])
def test_cores_that_are_there_are_not_refused(cpus):
    refuse_unusable(cpus, rank_cores(cpus, 2), {0, 1})
