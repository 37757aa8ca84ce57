from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minedraft.errors import ProtocolError
from minedraft.model.sampling_row import SamplingRow
from minedraft.plans import DraftRow
from minedraft.services.drafter.rows import DrafterRows, Row
from minedraft.types import DebugOptions, RowId, RowParams


def make_row(prompt=(1, 2, 3), output=()) -> Row:
    return Row(SamplingRow(RowParams(), prompt, output))


def feed(row: Row) -> list[int]:
    """What an engine does with `missing`."""
    tokens = row.missing()
    row.cached += tokens
    row.num_agreed = len(row.cached)
    return tokens


# -- one row --------------------------------------------------------------------------------


def test_a_new_row_lacks_everything():
    assert make_row((1, 2), (3,)).missing() == [1, 2, 3]


def test_tokens_are_found_in_prompt_and_output():
    row = make_row((1, 2), (3, 4))
    assert [row.token(position) for position in range(4)] == [1, 2, 3, 4]


def test_the_last_committed_token_is_fed_again_for_its_logits():
    row = make_row()
    feed(row)
    assert row.missing() == [3]
    assert row.cached == [1, 2]


def test_accepted_drafts_are_not_fed_again():
    row = make_row()
    feed(row)
    row.cached += [4, 5]  # drafted 4, 5, 6; the last draft has no KV
    row.sampling.set_committed(7, (4, 5, 6, 7))
    assert row.missing() == [6, 7]
    assert row.cached == [1, 2, 3, 4, 5]


def test_a_draft_that_agrees_after_one_that_differs_is_fed_again():
    row = make_row()
    feed(row)
    row.cached += [9, 5, 6]  # 4 was right; 5 and 6 agree by chance, their KV was built on 9
    row.sampling.set_committed(7, (4, 5, 6, 7))
    assert row.missing() == [4, 5, 6, 7]
    assert row.cached == [1, 2, 3]


def test_the_same_length_again_changes_nothing():
    row = make_row()
    feed(row)
    row.cached += [4, 5]
    row.sampling.set_committed(4, (8,))
    assert feed(row) == [8]
    row.cached += [9, 9]
    row.sampling.set_committed(4, (8,))
    assert feed(row) == [8]
    assert row.cached == [1, 2, 3, 8]


def test_a_dropped_cache_lacks_everything():
    row = make_row()
    row.block_ids = [4, 5]
    feed(row)
    assert row.drop_cache() == [4, 5]
    assert (row.block_ids, row.cached, row.num_agreed) == ([], [], 0)
    assert row.missing() == [1, 2, 3]


# -- all rows -------------------------------------------------------------------------------


def test_a_row_that_is_not_open_cannot_be_brought_up():
    with pytest.raises(ProtocolError, match="row 3, which is not open"):
        DrafterRows(4, 2).bring_up(DraftRow(RowId(3), 4, (), 1))


def test_a_hole_is_refused():
    rows = DrafterRows(4, 2)
    rows.open(RowId(1), make_row())
    with pytest.raises(ProtocolError, match="hole"):
        rows.bring_up(DraftRow(RowId(1), 6, (9,), 1))


def test_blocks_are_taken_as_needed_and_given_back():
    rows = DrafterRows(4, 2)
    row = make_row()
    rows.open(RowId(1), row)
    assert rows.reserve(row, 3)
    assert rows.reserve(row, 4)
    assert (len(row.block_ids), rows.num_blocks_used) == (2, 2)
    assert rows.reserve(row, 5)
    assert rows.num_blocks_used == 3
    rows.close(RowId(1))
    rows.close(RowId(1))
    assert (rows.num_blocks_used, rows.num_rows) == (0, 0)


def test_a_row_there_is_no_room_for_gives_its_blocks_up():
    rows = DrafterRows(4, 2)
    small, big = make_row(), make_row()
    rows.open(RowId(1), small)
    rows.open(RowId(2), big)
    assert rows.reserve(small, 4)
    assert rows.reserve(big, 4)
    feed(big)
    assert not rows.reserve(big, 6)
    assert (big.block_ids, big.cached) == ([], [])
    assert rows.reserve(small, 8)


def test_a_row_that_found_no_room_asks_again_once_another_has_ended():
    rows = DrafterRows(4, 2)
    small, big = make_row(), make_row()
    rows.open(RowId(1), small)
    rows.open(RowId(2), big)
    assert rows.reserve(small, 6)
    assert not rows.reserve(big, 4)
    assert not rows.reserve(big, 2), "there would be room, but not for long"
    rows.close(RowId(1))
    assert rows.reserve(big, 4)


def test_a_row_that_found_no_room_asks_again_once_another_gave_its_blocks_up():
    """Otherwise all of them wait for each other beside an empty pool."""
    rows = DrafterRows(4, 2)
    small, big = make_row(), make_row()
    rows.open(RowId(1), small)
    rows.open(RowId(2), big)
    assert rows.reserve(big, 6)
    assert not rows.reserve(small, 4)
    assert rows.reserve(big, 8)
    assert not rows.reserve(big, 10), "more than there is"
    assert rows.num_blocks_used == 0
    assert rows.reserve(small, 4)
    assert not rows.reserve(big, 10)
    assert rows.reserve(small, 6), "whoever has nothing to give up wakes nobody"


def test_a_row_that_is_opened_again_starts_over():
    rows = DrafterRows(4, 2)
    first, second = make_row(), make_row()
    rows.open(RowId(1), first)
    rows.reserve(first, 8)
    rows.open(RowId(1), second)
    assert (rows.num_rows, rows.num_blocks_used) == (1, 0)
    assert rows.bring_up(DraftRow(RowId(1), 3, (), 1)) is second


def test_reset_forgets_all():
    rows = DrafterRows(4, 2)
    for row_id in (1, 2):
        row = make_row()
        rows.open(RowId(row_id), row)
        rows.reserve(row, 2)
    rows.reset()
    assert (rows.num_rows, rows.num_blocks_used) == (0, 0)


# -- prefixes -------------------------------------------------------------------------------


def opened(rows: DrafterRows, row_id: int, prompt, salt="") -> Row:
    row = Row(SamplingRow(RowParams(), prompt, ()), salt=salt)
    rows.open(RowId(row_id), row)
    return row


def fill(rows: DrafterRows, row: Row) -> int:
    """What the engine does; return how many tokens were fed."""
    row.missing()
    rows.look_up(row)
    tokens = row.missing()
    assert rows.reserve(row, len(row.cached) + len(tokens))
    row.cached += tokens
    row.num_agreed = len(row.cached)
    rows.publish(row)
    return len(tokens)


@pytest.mark.parametrize(("length", "num_fed"), [(1, 1), (3, 3), (4, 4), (5, 1), (8, 4), (9, 1)])
def test_a_row_finds_whole_blocks_below_its_last_token(length, num_fed):
    rows = DrafterRows(20, 4)
    prompt = tuple(range(length))
    assert fill(rows, opened(rows, 1, prompt)) == length
    again = opened(rows, 2, prompt)
    assert fill(rows, again) == num_fed
    assert again.cached == list(prompt)
    assert rows.num_hit_tokens == length - num_fed


def test_a_row_finds_what_one_that_is_closed_has_left():
    rows = DrafterRows(20, 4)
    fill(rows, opened(rows, 1, range(9)))
    rows.close(RowId(1))
    assert (rows.num_blocks_used, rows.num_blocks_cached) == (0, 2)
    assert fill(rows, opened(rows, 2, range(9))) == 1
    assert (rows.num_blocks_used, rows.num_blocks_cached) == (3, 0)


def test_drafts_are_never_found():
    rows = DrafterRows(20, 4)
    row = opened(rows, 1, (1, 2, 3))
    fill(rows, row)
    row.cached += [4, 5, 6, 7, 8, 9]  # drafts, which fill two blocks
    row.block_ids += rows._blocks.allocate(2)
    rows.publish(row)
    rows.close(RowId(1))
    assert rows.num_blocks_cached == 0


def test_the_block_of_the_last_committed_token_is_not_found_for_it_is_fed_again():
    rows = DrafterRows(20, 4)
    row = opened(rows, 1, (1, 2, 3, 4))
    fill(rows, row)
    rows.close(RowId(1))
    assert rows.num_blocks_cached == 0


@pytest.mark.parametrize(("salt", "num_fed"), [("a", 1), ("b", 9), ("", 9)])
def test_salts_keep_rows_apart(salt, num_fed):
    rows = DrafterRows(20, 4)
    fill(rows, opened(rows, 1, range(9), salt="a"))
    assert fill(rows, opened(rows, 2, range(9), salt=salt)) == num_fed


def test_what_a_row_without_numbers_published_is_found_by_nobody():
    rows = DrafterRows(20, 4)
    row, other = opened(rows, 1, range(9)), opened(rows, 2, range(9))
    fill(rows, row)
    fill(rows, other)
    rows.give_up(other)
    assert fill(rows, opened(rows, 3, range(9))) == 9


def test_a_row_whose_committed_tokens_are_taken_back_writes_to_no_block_of_others():
    rows = DrafterRows(20, 4)
    row = Row(SamplingRow(RowParams(), (0,), range(1, 12)))
    rows.open(RowId(1), row)
    other = opened(rows, 2, range(12))
    fill(rows, row)
    fill(rows, other)
    shared = set(other.block_ids[:2])
    row.sampling.set_committed(6, (5,))
    row.missing()
    rows.look_up(row)
    assert row.block_ids[1:] == []
    assert fill(rows, row) == 2
    assert not set(row.block_ids[1:]) & shared


def test_without_the_cache_nothing_is_found():
    rows = DrafterRows(20, 4, prefix_cache=False)
    fill(rows, opened(rows, 1, range(9)))
    rows.close(RowId(1))
    assert (fill(rows, opened(rows, 2, range(9))), rows.num_blocks_cached) == (9, 0)


# -- the cache against a list ---------------------------------------------------------------

TOKENS = st.integers(0, 2)  # few, so that wrong drafts agree by chance


class RowMachine(RuleBasedStateMachine):
    """`kv[i]` is the whole context that the KV at position i was built from."""

    @initialize(prompt=st.lists(TOKENS, min_size=1, max_size=5))
    def start(self, prompt):
        self.committed = list(prompt)
        self.num_prompt = len(prompt)
        self.row = make_row(tuple(prompt))
        self.kv: list[tuple[int, ...]] = []

    def _write(self, token):
        position = len(self.row.cached)
        del self.kv[position:]
        self.kv.append((*self.kv[-1], token) if self.kv else (token,))
        self.row.cached.append(token)

    @rule(budget=st.integers(1, 12))
    def catch_up(self, budget):
        self.bring_up(0)
        missing = self.row.missing()
        start = len(self.row.cached)
        assert missing == self.committed[start:]
        assert missing, "the last token at least"
        clean = 0
        while clean < min(len(self.kv), len(self.committed) - 1) and self.kv[clean] == tuple(
            self.committed[: clean + 1]
        ):
            clean += 1
        assert start == clean, "exactly the KV that is good is kept"
        for token in missing[:budget]:
            self._write(token)
        self.row.num_agreed = len(self.row.cached)

    @rule(drafts=st.lists(TOKENS, max_size=5))
    def draft(self, drafts):
        if self.row.cached == self.committed:
            for token in drafts:
                self._write(token)

    @rule(tokens=st.lists(TOKENS, min_size=1, max_size=6))
    def commit(self, tokens):
        """Steps may be lost: the drafter hears of several commits at once, or of none."""
        self.committed += tokens

    @rule(repeats=st.integers(0, 3))
    def bring_up(self, repeats):
        known = self.row.sampling.num_tokens
        first = max(known - repeats, self.num_prompt)
        self.row.sampling.set_committed(len(self.committed), tuple(self.committed[first:]))

    @rule()
    def drop(self):
        self.row.drop_cache()
        self.kv.clear()

    @invariant()
    def what_is_agreed_is_good(self):
        if not hasattr(self, "row"):
            return
        assert self.row.num_agreed <= len(self.row.cached) <= len(self.kv)
        for position in range(self.row.num_agreed):
            assert self.kv[position] == tuple(self.committed[: position + 1])


TestRowMachine = RowMachine.TestCase
TestRowMachine.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def test_the_reference_goes_on_where_the_committed_output_ends():
    made = Row(SamplingRow(RowParams(), (1, 2), (10, 11)), DebugOptions((10, 11, 12, 13)))
    assert made.reference(0, 1) == (12,)
    assert made.reference(1, 4) == (13,)
    assert made.reference(2, 1) == ()
