from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minedraft.errors import ProtocolError
from minedraft.model.batch import RowInput
from minedraft.model.parallel import wire

WORD = st.integers(0, 2**31 - 1)


@st.composite
def row(draw):
    tokens = draw(st.lists(WORD, min_size=1, max_size=30))
    return RowInput(
        tokens, draw(WORD), draw(st.lists(WORD, max_size=9)), len(tokens) - 1, draw(st.booleans())
    )


@given(st.lists(row(), min_size=1, max_size=6))
def test_rows_survive_the_way(rows):
    words = wire.encode(rows)
    assert words.dtype == torch.int32
    assert wire.num_words(words) == len(words)
    assert wire.decode(words) == rows


def test_no_rows_are_the_order_to_stop():
    words = wire.encode(())
    assert wire.num_words(words) == len(words)
    assert wire.decode(words) == []


def test_a_verify_step_of_32_rows_of_1000_positions_is_one_message():
    rows = [RowInput([1] * 6, 994, list(range(63)), 6)] * 32
    assert len(wire.encode(rows)) <= wire.FRAME_WORDS


@pytest.mark.parametrize(("at", "value"), [(0, 7), (1, 9), (2, 3), (2, -1)])
def test_what_is_no_header_is_refused(at, value):
    words = wire.encode([RowInput([1], 0, [0], 1)])
    words[at] = value
    with pytest.raises(ProtocolError, match="out of step"):
        wire.num_words(words)


@pytest.mark.parametrize("cut", [1, 2])
def test_lengths_that_do_not_add_up_are_refused(cut):
    words = wire.encode([RowInput([1, 2], 0, [0, 4], 1)])
    with pytest.raises(ProtocolError, match="1 rows in"):
        wire.decode(words[:-cut])
