from __future__ import annotations

import pytest

from minedraft.errors import StateError
from minedraft.model.batch import RowInput, check_rows


def check(*rows):
    check_rows(rows, block_size=4, num_blocks=10, max_model_len=32)


def test_rows_may_share_a_block_that_neither_writes():
    check(RowInput([1], 4, [0, 1], 1), RowInput([1], 4, [0, 2], 1))


def test_rows_may_not_write_one_block():
    with pytest.raises(StateError, match="block 1 is also written by row 0"):
        check(RowInput([1], 4, [0, 1], 1), RowInput([1], 4, [2, 1], 1))


def test_blocks_beyond_the_positions_fed_are_not_looked_at():
    check(RowInput([1], 0, [0, 99], 1))


def test_no_rows_are_refused():
    with pytest.raises(StateError, match="no rows"):
        check()
