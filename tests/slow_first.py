"""Orders tests for several processes: each begins with slow modules and ends with quick tests.

xdist gives each process an equal run of the list, and one that has nothing left takes half of what
another still has, from its end. Were slow tests last, one process would wait for another's.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


def slow_first(tests: Iterable[tuple[str, bool, T]], num_processes: int) -> list[T]:
    """Return all tests in another order.

    Args:
        tests: Module, whether it is slow, and the test, as collected: modules are whole.
        num_processes: Each gets an equal run of the list.
    """
    tests = list(tests)
    slow: list[list[T]] = [[] for _ in range(num_processes)]
    for _, module in groupby((t for t in tests if t[1]), key=itemgetter(0)):
        min(slow, key=len).extend(test for _, _, test in module)  # fixtures of a module stay shared
    quick = [test for _, is_slow, test in tests if not is_slow]
    ordered: list[T] = []
    for index, share in enumerate(slow):
        end = len(tests) * (index + 1) // num_processes
        num_quick = max(end - len(ordered) - len(share), 0)
        ordered += share
        ordered += quick[:num_quick]
        del quick[:num_quick]
    return ordered + quick
