from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import ProtocolError
from minedraft.model.sampling_row import Position, SamplingRow
from minedraft.types import RowParams

CPU = torch.device("cpu")


def row(prompt=(1, 2, 3), output=(), **params) -> SamplingRow:
    return SamplingRow(RowParams(**params), prompt, output)


def test_commit_appends_and_moves_the_position():
    r = row()
    r.set_committed(5, [7, 8])
    assert r.output_token_ids == [7, 8]
    assert r.num_tokens == 5
    assert Position(r, [9]).index == 6


def test_repeated_commit_changes_nothing():
    r = row()
    for _ in range(3):
        r.set_committed(5, [7, 8])
    assert r.output_token_ids == [7, 8]


def test_commit_cuts_what_reached_further_and_rewrites_what_differs():
    r = row(output=(7, 8, 9, 10))
    r.set_committed(5, [6])
    assert r.output_token_ids == [7, 6]
    r.set_committed(4, [])
    assert r.output_token_ids == [7]


def test_commit_may_reach_back_into_the_prompt():
    r = row()
    r.set_committed(4, [2, 3, 7])
    assert r.output_token_ids == [7]
    r.set_committed(3, [1, 2, 3])
    assert r.output_token_ids == []


@pytest.mark.parametrize(
    ("base_len", "new"),
    [(6, [9]), (5, [9]), (2, []), (2, [1, 2]), (4, [2, 9, 7]), (1, [1, 2, 3]), (3, [9])],
)
def test_hole_or_changed_prompt_is_the_peers_fault_and_leaves_the_row_alone(base_len, new):
    r = row()
    with pytest.raises(ProtocolError, match=f"base_len {base_len}"):
        r.set_committed(base_len, new)
    assert r.num_tokens == 3


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(0, 4), max_size=5)), max_size=12))
def test_counts_equal_those_of_the_output_after_any_commits(commits):
    r = row(presence_penalty=1.0, repetition_penalty=1.5)
    for cut, new in commits:
        keep = max(0, len(r.output_token_ids) - cut)
        expected = r.output_token_ids[:keep] + new
        r.set_committed(3 + keep + len(new), new)
        assert r.output_token_ids == expected
        ids, counts = r.penalised(CPU)
        found = dict(zip(ids.tolist(), counts.tolist(), strict=True))
        assert found == dict.fromkeys((1, 2, 3), 0) | dict(Counter(expected))
        assert all(r.output_count(t) == expected.count(t) for t in range(5))


def test_prompt_is_not_penalised_without_a_repetition_penalty():
    ids, counts = row(output=(2, 2, 5), frequency_penalty=0.5).penalised(CPU)
    assert dict(zip(ids.tolist(), counts.tolist(), strict=True)) == {2: 2, 5: 1}
