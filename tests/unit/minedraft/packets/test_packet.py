"""Packets survive the trip exactly, and nothing a peer sends does more than lose drafts."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import InvalidRequestError, ProtocolError, StateError
from minedraft.packets.packet import MAX_PACKET_BYTES, DraftedRow, DraftPacket, PacketLayout

VOCAB = 1000
LAYOUT = PacketLayout(max_rows=4, max_draft_tokens=3, q_width=2)
HEADER = 10
ids = st.integers(0, VOCAB - 1)
u64 = st.integers(0, 2**64 - 1)


@st.composite
def layouts(draw):
    return PacketLayout(
        draw(st.integers(1, 20)), draw(st.integers(1, 8)), draw(st.sampled_from([0, 1, 2, 5]))
    )


@st.composite
def distributions(draw, width, drawn):
    others = draw(st.lists(ids, unique=True, max_size=width - 1))
    tokens = [drawn, *(token for token in others if token != drawn)]
    weights = np.array([draw(st.integers(1, 100)) for _ in tokens], dtype=np.float32)
    return tuple(tokens), tuple((weights / weights.sum()).tolist())


@st.composite
def packets(draw, layout):
    rows = []
    row_ids = draw(st.lists(u64, unique=True, max_size=layout.max_rows))
    for row_id in row_ids:
        drafts = tuple(draw(st.lists(ids, max_size=layout.max_draft_tokens)))
        scores = tuple(draw(st.floats(0, 1, width=32)) for _ in drafts)
        q = ()
        if layout.q_width:
            q = tuple(draw(distributions(layout.q_width, token)) for token in drafts)
        rows.append(
            DraftedRow(
                row_id,
                draw(st.integers(0, 2**31 - 1)),
                drafts,
                scores if draw(st.booleans()) else (),
                q if draw(st.booleans()) else (),
            )
        )
    return DraftPacket(draw(u64), draw(u64), draw(st.integers(0, 2**31 - 1)), tuple(rows))


def row(row_id=7, base_len=12, token_ids=(1, 2), **kwargs):
    return DraftedRow(row_id, base_len, token_ids, **kwargs)


def packet(*rows, epoch=1, step_id=2, batch=0):
    return DraftPacket(epoch, step_id, batch, rows)


def reseal(layout, words):
    """Give edited words a right checksum: a hostile peer can."""
    return layout._seal(words)


@given(st.data())
def test_a_packet_survives_the_trip(data):
    layout = data.draw(layouts())
    sent = data.draw(packets(layout))

    words = layout.encode(sent)
    got = layout.decode(layout.from_bytes(words.tobytes()), VOCAB)

    assert words.shape == (layout.num_words,)
    assert words.dtype == np.int32
    assert got == sent


@given(st.data())
def test_one_flipped_bit_anywhere_is_refused(data):
    words = LAYOUT.encode(data.draw(packets(LAYOUT)))
    bit = data.draw(st.integers(0, LAYOUT.num_words * 32 - 1))
    words.view(np.uint32)[bit // 32] ^= np.uint32(1 << bit % 32)

    with pytest.raises(ProtocolError):
        LAYOUT.decode(words, VOCAB)


@given(st.data())
@settings(max_examples=300)
def test_hostile_words_give_a_sane_packet_or_a_protocol_error(data):
    words = LAYOUT.encode(data.draw(packets(LAYOUT)))
    nasty = st.one_of(
        st.integers(-(2**31), 2**31 - 1), st.sampled_from([-1, 0, 4, 5, VOCAB, 0x7F800000])
    )
    for at in data.draw(st.lists(st.integers(3, LAYOUT.num_words - 1), max_size=12)):
        words[at] = data.draw(nasty)
    reseal(LAYOUT, words)

    try:
        got = LAYOUT.decode(words, VOCAB)
    except ProtocolError:
        return
    assert len(got.rows) <= LAYOUT.max_rows
    for line in got.rows:
        assert len(line.token_ids) <= LAYOUT.max_draft_tokens
        assert all(0 <= token < VOCAB for token in line.token_ids)
        assert all(0 <= value < float("inf") for value in line.scores)
        assert len(line.scores) in {0, len(line.token_ids)}
        assert len(line.q) in {0, len(line.token_ids)}
        for token, (q_ids, probs) in zip(line.token_ids, line.q, strict=False):
            assert len(q_ids) == len(probs) <= LAYOUT.q_width
            assert dict(zip(q_ids, probs, strict=True))[token] > 0
            assert sum(probs) == pytest.approx(1, abs=2e-3)
    assert len({line.row_id for line in got.rows if line.token_ids}) == sum(
        bool(line.token_ids) for line in got.rows
    )


@given(st.binary(max_size=4 * LAYOUT.num_words + 8))
def test_random_bytes_are_refused(data):
    with pytest.raises(ProtocolError):
        LAYOUT.decode(LAYOUT.from_bytes(data), VOCAB)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=236, max_size=236))
def test_random_words_are_refused(values):
    layout = PacketLayout(max_rows=2, max_draft_tokens=4, q_width=12)
    words = np.resize(np.array(values, dtype=np.int32), layout.num_words)

    with pytest.raises(ProtocolError):
        layout.decode(words, VOCAB)


def edit(at_word, value, sent=None):
    """Words of a one-row packet with one word of its row replaced."""
    words = LAYOUT.encode(sent or packet(row(scores=(0.5, 0.25)), row(row_id=8)))
    words[HEADER + at_word] = value
    return reseal(LAYOUT, words)


def bits(value):
    return int(np.float32(value).view(np.int32))


@pytest.mark.parametrize(
    ("at_word", "value"),
    [
        pytest.param(2, -1, id="negative base_len"),
        pytest.param(3, -1, id="negative k"),
        pytest.param(3, 4, id="k over the layout"),
        pytest.param(3, 2**31 - 1, id="huge k"),
        pytest.param(4, 8, id="unknown flag"),
        pytest.param(4, -1, id="negative flags"),
        pytest.param(4, 2, id="q announced but empty"),
        pytest.param(5, -1, id="negative token id"),
        pytest.param(6, VOCAB, id="token id at the vocabulary size"),
        pytest.param(8, bits(np.nan), id="NaN confidence"),
        pytest.param(9, bits(np.inf), id="infinite confidence"),
        pytest.param(9, bits(-0.1), id="negative confidence"),
    ],
)
def test_a_malformed_row_loses_its_drafts_and_is_counted_but_its_neighbour_does_not(at_word, value):
    got = LAYOUT.decode(edit(at_word, value), VOCAB)

    assert got.num_bad_rows == 1
    assert got.rows[0].row_id == 7
    assert got.rows[0].token_ids == got.rows[0].scores == got.rows[0].q == ()
    assert got.rows[1] == row(row_id=8)


@pytest.mark.parametrize(
    "q",
    [
        pytest.param((((1, 3), (float("nan"), 0.5)),), id="NaN"),
        pytest.param((((1, 3), (-0.5, 1.5)),), id="negative"),
        pytest.param((((1, 3), (float("inf"), 0.0)),), id="infinite"),
        pytest.param((((1, VOCAB), (0.5, 0.5)),), id="id out of the vocabulary"),
        pytest.param((((1, 1), (0.5, 0.5)),), id="an id twice"),
        pytest.param((((2, 3), (0.5, 0.5)),), id="the draft is not in it"),
        pytest.param((((1, 3), (0.0, 1.0)),), id="the draft has no mass"),
        pytest.param((((1, 3), (0.5, 0.4)),), id="mass under one"),
        pytest.param((((1, 3), (0.9, 0.9)),), id="mass over one"),
        pytest.param((((), ()),), id="empty"),
    ],
)
def test_a_distribution_the_draft_cannot_have_come_from_costs_the_row_its_drafts(q):
    words = LAYOUT.encode(packet(row(token_ids=(1,), q=q), row(row_id=8)))

    got = LAYOUT.decode(words, VOCAB)

    assert got.num_bad_rows == 1
    assert [len(line.token_ids) for line in got.rows] == [0, 2]


def test_a_row_id_that_comes_twice_has_drafts_only_once():
    got = LAYOUT.decode(LAYOUT.encode(packet(row(), row(token_ids=(3,)))), VOCAB)

    assert got.num_bad_rows == 1
    assert [line.token_ids for line in got.rows] == [(1, 2), ()]


@pytest.mark.parametrize(
    ("at_word", "value"), [(0, 1), (1, 1), (1, 3), (2, 3), (2, 2), (7, -1), (8, -1), (8, 5)]
)
def test_a_bad_header_is_a_protocol_error(at_word, value):
    words = LAYOUT.encode(packet(row()))
    words[at_word] = value

    with pytest.raises(ProtocolError):
        LAYOUT.decode(reseal(LAYOUT, words), VOCAB)


@pytest.mark.parametrize(
    "words",
    [
        np.zeros(0, np.int32),
        np.zeros(LAYOUT.num_words - 1, np.int32),
        np.zeros(LAYOUT.num_words, np.int64),
        np.zeros((1, LAYOUT.num_words), np.int32),
    ],
)
def test_another_shape_or_dtype_is_a_protocol_error(words):
    with pytest.raises(ProtocolError, match="want"):
        LAYOUT.decode(words, VOCAB)


def test_two_ends_with_different_layouts_of_equal_length_do_not_understand_each_other():
    one = PacketLayout(max_rows=3, max_draft_tokens=2, q_width=0)
    other = PacketLayout(max_rows=1, max_draft_tokens=11, q_width=0)
    assert one.num_words == other.num_words

    with pytest.raises(ProtocolError, match="checksum"):
        other.decode(one.encode(packet(row())), VOCAB)


def test_decoding_never_costs_more_than_a_few_times_the_packet():
    layout = PacketLayout(max_rows=256, max_draft_tokens=8, q_width=16)
    words = layout.encode(packet())
    words[8] = layout.max_rows
    words[HEADER:].reshape(layout.max_rows, -1)[:, 3:5] = (8, 3)
    reseal(layout, words)

    tracemalloc.start()
    try:
        assert layout.decode(words, VOCAB).num_bad_rows == layout.max_rows
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * layout.num_bytes


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (packet(*(row(row_id=i) for i in range(5))), "rows=5"),
        (packet(row(token_ids=(1, 2, 3, 4))), "drafts of a row=4"),
        (packet(row(token_ids=(-1,))), "token id=-1"),
        (packet(row(token_ids=(2**31,))), "token id=2147483648"),
        (packet(row(row_id=-1)), "row_id=-1"),
        (packet(row(row_id=2**64)), "row_id=18446744073709551616"),
        (packet(row(base_len=-1)), "base_len=-1"),
        (packet(row(scores=(0.5,))), "1 scores"),
        (packet(row(q=(((1,), (1.0,)),))), "1 distributions"),
        (packet(row(token_ids=(1,), q=(((1, 2, 3), (0.5, 0.25, 0.25)),))), "width of q=3"),
        (packet(row(token_ids=(1,), q=(((1, 2), (0.5,)),))), "2 ids, 1 values"),
        (packet(epoch=2**64), "epoch="),
        (packet(step_id=-1), "step_id=-1"),
        (packet(batch=2**31), "batch="),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_value(bad, says):
    with pytest.raises(StateError, match=says):
        LAYOUT.encode(bad)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((0, 1, 0), "max_rows"),
        ((4097, 1, 0), "max_rows"),
        ((1, 0, 0), "max_draft_tokens"),
        ((1, 33, 0), "max_draft_tokens"),
        ((1, 1, -1), "q_width"),
        ((1, 1, 65), "q_width"),
        ((4096, 32, 64), "max_rows"),
    ],
)
def test_a_layout_out_of_range_is_refused(values, field):
    with pytest.raises(InvalidRequestError, match=field) as refused:
        PacketLayout(*values)
    assert refused.value.field == field


def test_the_largest_batch_without_q_fits_a_message():
    assert PacketLayout(max_rows=2048, max_draft_tokens=32).num_bytes <= MAX_PACKET_BYTES


def test_a_heartbeat_is_no_draft_packet_and_the_other_way_round():
    heartbeat = LAYOUT.encode_heartbeat(3)

    assert LAYOUT.is_heartbeat(heartbeat)
    assert not LAYOUT.is_heartbeat(LAYOUT.encode(packet(row())))
    assert not LAYOUT.is_heartbeat(heartbeat[:-1])
    with pytest.raises(ProtocolError):
        LAYOUT.decode(heartbeat, VOCAB)


def test_the_format_is_pinned():
    # Another version of the package may be at the other end: a change needs a new version number.
    words = LAYOUT.encode(packet(row(scores=(0.5, 0.25)), epoch=2**40 + 1, step_id=9, batch=1))

    assert words[:9].tolist() == [0x4D444C4B, 2, 1, 1, 256, 9, 0, 1, 1]
    assert words[10:20].tolist() == [7, 0, 12, 2, 1, 1, 2, 0, bits(0.5), bits(0.25)]
    assert words[9] == -268149195
