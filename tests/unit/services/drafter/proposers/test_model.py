from __future__ import annotations

import pytest

from minedraft.types import RowParams
from tests.draft_world import Drafter, opened, row


def test_every_draft_carries_the_distribution_it_was_drawn_from():
    drafter = Drafter(q_width=5)
    drafter.step([row()], opens=[opened(params=RowParams(temperature=1.0, seed=3))])
    sent = drafter.packets[0].rows[0]
    assert len(sent.q) == len(sent.token_ids) == 4
    for token, (ids, probs) in zip(sent.token_ids, sent.q, strict=True):
        assert token in ids
        assert len(ids) == len(probs) <= 5
        assert sum(probs) == pytest.approx(1.0, abs=1e-5)


def test_the_parts_of_a_step_are_timed():
    drafter = Drafter()
    timing = drafter.step([row()], opens=[opened()]).timing
    assert 0 < timing.forward_ns < timing.total_ns
    assert 0 < timing.sample_ns < timing.total_ns
