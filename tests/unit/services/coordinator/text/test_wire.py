from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.errors import ProtocolError
from minedraft.services.coordinator.text.wire import PREFIX, Answer, Order, sizes

IDS = st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple), max_size=3).map(tuple)


def content(frame: bytes) -> tuple[dict, bytes]:
    header, body = sizes(frame[: PREFIX.size])
    assert len(frame) == PREFIX.size + header + body
    return json.loads(frame[PREFIX.size : PREFIX.size + header]), frame[PREFIX.size + header :]


@given(st.lists(st.text(), max_size=4).map(tuple), st.booleans())
def test_an_order_arrives_as_it_was_sent(texts, parse):
    order = Order("chat", texts, ("user",) * len(texts), parse, 7, 8, not parse)
    assert Order.from_frame(*content(order.to_frame())) == order


@given(st.lists(st.integers(0, 2**32 - 1)).map(tuple), st.booleans())
def test_ids_arrive_as_they_were_sent(ids, skip):
    order = Order("ids", ids=ids, skip_special_tokens=skip, max_bytes=9)
    assert Order.from_frame(*content(order.to_frame())) == order


@given(IDS, st.text(), st.booleans(), st.text())
def test_an_answer_arrives_as_it_was_sent(ids, error, is_last, text):
    answer = Answer(ids, 5, error, "field", is_last, text)
    assert Answer.from_frame(*content(answer.to_frame())) == answer


@pytest.mark.parametrize(
    ("header", "body"),
    [({}, b""), ({"counts": [1], "num_tokens": "x", "error": "", "field": "", "last": 0}, b"1234"),
     ({"counts": [1], "num_tokens": 1, "error": "", "field": "", "last": 0}, b"123"),
     ({"counts": [], "num_tokens": 0, "error": "", "field": "", "last": 0}, b"\xff")],
)  # fmt: skip
def test_an_answer_that_is_none_breaks_the_protocol(header, body):
    with pytest.raises(ProtocolError, match="text"):
        Answer.from_frame(header, body)


def test_a_frame_has_a_size_that_can_be():
    assert sizes(PREFIX.pack(1 << 20, 1 << 26)) == (1 << 20, 1 << 26)
    for prefix in (PREFIX.pack((1 << 20) + 1, 0), PREFIX.pack(0, (1 << 26) + 1)):
        with pytest.raises(ProtocolError):
            sizes(prefix)
