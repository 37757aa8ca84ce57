from __future__ import annotations

import pytest

from tests.draft_world import drafting


@pytest.mark.parametrize("is_ready", [True, False])
def test_what_is_due_is_fed_after_what_is_cached_and_is_agreed_then(is_ready):
    item = drafting((7, 8, 9))
    item.row.cached, item.row.block_ids = [1, 2], [3, 4]
    item.due, item.is_ready = [7, 8], is_ready
    given = item.feed_due()
    assert (given.token_ids, given.start, given.block_ids) == ([7, 8], 2, [3, 4])
    assert given.num_logits == is_ready
    assert item.row.cached == [1, 2, 7, 8]
    assert item.row.num_agreed == 4


def test_a_draft_that_is_fed_is_cached_and_not_agreed():
    item = drafting(drafts=(7, 8))
    item.row.cached, item.row.num_agreed = [1, 2, 7], 2
    given = item.feed_draft()
    assert (given.token_ids, given.start, given.num_logits) == ([8], 3, 1)
    assert item.row.cached == [1, 2, 7, 8]
    assert item.row.num_agreed == 2


def test_a_draft_without_a_distribution_is_a_proposal_of_its_own():
    item = drafting()
    item.add(5, ((5, 6), (0.75, 0.25)))
    item.add(7)
    assert item.drafts == [5, 7]
    assert item.q == [((5, 6), (0.75, 0.25)), ((7,), (1.0,))]
