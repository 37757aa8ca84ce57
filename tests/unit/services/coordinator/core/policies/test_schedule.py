from __future__ import annotations

import pytest

from minedraft.policy_options import PolicyOptions
from minedraft.services.coordinator.core.policies.schedule import Schedule
from tests.unit.services.coordinator.core.policies.views import view_of


def ks(num_rows: int, text: str = "[[1, 4, 5], [8, 16, 2], [17, 32, 0]]", k: int = 8) -> list[int]:
    policy = Schedule(PolicyOptions(num_speculative_tokens_per_batch_size=text))
    view = view_of(num_rows, k=k)
    return policy.choose(view).bounded_by(view).num_draft_tokens


@pytest.mark.parametrize(
    ("num_rows", "k"),
    [(1, 5), (4, 5), (5, 5), (7, 5), (8, 2), (16, 2), (17, 0), (32, 0), (60, 0)],
)
def test_k_is_that_of_the_range_or_of_the_one_before_a_gap(num_rows, k):
    assert ks(num_rows) == [k] * num_rows


def test_k_is_no_more_than_the_services():
    assert ks(2, k=3) == [3, 3]


def test_an_empty_batch_is_no_error():
    assert ks(0) == []
