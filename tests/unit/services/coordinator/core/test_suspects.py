from __future__ import annotations

from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.core.suspects import apart, count_failure
from minedraft.types import RequestId, RowParams


def requests(*num_failed: int) -> list[Request]:
    return [
        Request(RequestId(f"r{i}"), (1,), RowParams(), 1, num_failed_steps=num)
        for i, num in enumerate(num_failed)
    ]


def test_the_third_failure_is_one_too_many():
    first, second = both = requests(0, 1)
    assert count_failure(both) == []
    assert count_failure(both) == [second]
    assert (first.num_failed_steps, second.num_failed_steps) == (2, 3)


def test_suspects_step_alone_and_before_the_others_who_share_a_step():
    a, b, c, d = requests(0, 1, 2, 0)
    assert apart([a, b, c, d]) == [[b], [c], [a, d]]
    assert apart([a, d]) == [[a, d]]
