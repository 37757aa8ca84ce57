from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.services.verifier.ngram import (
    LENGTHS,
    MAX_EMPTY_STEPS,
    MAX_INDEXED_PER_STEP,
    REST_STEPS,
    NgramDrafts,
)


class Counted:
    """Tokens, and how many of them were read."""

    def __init__(self, tokens) -> None:
        self.tokens = list(tokens)
        self.num_read = 0

    def __call__(self, start: int, end: int) -> list[int]:
        self.num_read += end - start
        return self.tokens[start:end]


def wide() -> NgramDrafts:
    """One whose drafts have all stood: it drafts as many as it may."""
    made = NgramDrafts()
    for num_drafts in (1, 2, 4, 8, 16):
        made.observe(num_drafts, num_drafts)
    return made


def propose(made: NgramDrafts, tokens, most: int = 4) -> list[int]:
    return made.propose(Counted(tokens), len(tokens), most)


def slow(tokens: list[int], most: int) -> list[int]:
    """The same by search."""
    for size in LENGTHS:
        tail = tokens[-size:]
        for end in range(len(tokens) - 1, size - 1, -1):
            if len(tail) == size and tokens[end - size : end] == tail:
                drafts: list[int] = []
                while len(drafts) < most:
                    drafts.append([*tokens, *drafts][end + len(drafts)])
                return drafts
    return []


def test_what_followed_the_same_tokens_is_drafted():
    assert propose(wide(), [1, 2, 3, 7, 8, 9, 1, 2]) == [3, 7, 8, 9]


def test_the_longest_match_counts_and_of_equal_ones_the_latest():
    assert propose(wide(), [5, 1, 2, 3, 9, 1, 2, 8, 5, 1, 2], 1) == [3]
    assert propose(wide(), [1, 2, 3, 1, 2, 8, 1, 2], 1) == [8]


def test_a_match_that_runs_into_the_drafts_repeats_them():
    assert propose(wide(), [4, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 2, 3, 4, 5], [1, 1]])
def test_nothing_comes_of_tokens_that_do_not_repeat(tokens):
    assert propose(wide(), tokens) == []


def test_one_token_is_no_match():
    assert propose(wide(), [1, 2, 3, 1]) == []


@given(
    tokens=st.lists(st.integers(0, 3), max_size=60),
    most=st.integers(1, 6),
    pieces=st.lists(st.integers(1, 9), max_size=8),
)
def test_it_finds_what_a_search_finds_however_the_row_grew(tokens, most, pieces):
    made, length = wide(), 0
    for piece in pieces:
        length = min(length + piece, len(tokens))
        propose(made, tokens[:length], most)
    assert propose(made, tokens, most) == slow(tokens, most)


@given(
    first=st.lists(st.integers(0, 3), max_size=40),
    second=st.lists(st.integers(0, 3), max_size=40),
    cut=st.integers(0, 40),
)
def test_after_a_row_was_cut_nothing_is_drafted_that_did_not_follow(first, second, cut):
    made = wide()
    propose(made, first)
    tokens = [*first[:cut], *second]
    drafts = propose(made, tokens)
    if drafts:
        assert any(
            tokens[end - 2 : end] == tokens[-2:] and tokens[end] == drafts[0]
            for end in range(2, len(tokens))
        )


def test_a_long_context_costs_a_bounded_number_of_tokens_per_step():
    num_tokens = 100_000
    tokens = Counted([i % 50_000 for i in range(num_tokens)])
    made = wide()
    most_read = 0
    for _ in range(num_tokens // MAX_INDEXED_PER_STEP + 1):
        before = tokens.num_read
        drafts = made.propose(tokens, num_tokens, 4)
        most_read = max(most_read, tokens.num_read - before)
    assert most_read < MAX_INDEXED_PER_STEP + 32
    assert drafts == [0, 1, 2, 3]


# -- whether it helps -----------------------------------------------------------------------

LOOP = [1, 2] * 10


def test_drafts_grow_while_all_stand_and_shrink_when_none_does():
    made = NgramDrafts()
    sizes = []
    for accepted in (1, 2, 4, 0, 0, 0, 1):
        drafts = propose(made, LOOP, 8)
        sizes.append(len(drafts))
        made.observe(len(drafts), accepted)
    assert sizes == [1, 2, 4, 8, 4, 2, 1]


def test_after_steps_in_vain_a_row_rests_and_tries_again():
    made = NgramDrafts()
    for _ in range(MAX_EMPTY_STEPS):
        made.observe(len(propose(made, LOOP)), 0)
    assert [propose(made, LOOP) for _ in range(REST_STEPS)] == [[]] * REST_STEPS
    assert propose(made, LOOP) == [1]


def test_one_that_stands_starts_the_count_anew():
    made = NgramDrafts()
    for _ in range(3):
        for _ in range(MAX_EMPTY_STEPS - 1):
            made.observe(len(propose(made, LOOP)), 0)
        made.observe(len(propose(made, LOOP)), 1)
    assert propose(made, LOOP)
