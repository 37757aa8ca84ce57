from __future__ import annotations

import pytest

from tests.slow_first import slow_first


def collected(**modules):
    """Names per module; those of a slow one begin with s."""
    return [
        (module, name.startswith("s"), name) for module, names in modules.items() for name in names
    ]


def test_each_process_begins_with_whole_slow_modules_and_ends_with_quick_tests():
    tests = collected(
        a=["qa", "qb"], b=["s1", "s2", "s3"], c=["qc"], d=["s4"], e=["s5"], f=["qd", "qe", "qf"]
    )
    ordered = slow_first(tests, 2)
    assert ordered[:5] == ["s1", "s2", "s3", "qa", "qb"]
    assert ordered[5:] == ["s4", "s5", "qc", "qd", "qe", "qf"]


@pytest.mark.parametrize("num_processes", [1, 2, 3, 7])
@pytest.mark.parametrize("num_slow", [0, 1, 5, 9])
def test_no_test_is_lost_or_repeated(num_processes, num_slow):
    tests = [(f"m{i // 2}", i < num_slow, i) for i in range(9)]
    assert sorted(slow_first(tests, num_processes)) == list(range(9))
