"""Messages of 4 MiB that cost protobuf a fifth of a second are refused before it sees them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.errors import InvalidRequestError
from minedraft.transport import wire_sizes
from minedraft.v1 import generation_pb2, types_pb2
from tests.hostile_requests import WIRE, field, many

CONTEXT = 2**20


def check(data: bytes) -> None:
    wire_sizes.check_generate(data, max_model_len=CONTEXT)


@pytest.mark.parametrize("data", WIRE.values(), ids=WIRE)
def test_too_many_of_anything_are_refused_in_little_time(data):
    begin = time.thread_time()
    with pytest.raises(InvalidRequestError, match=r"want (at most|fewer)"):
        check(data)
    assert time.thread_time() - begin < 0.05  # measured: under 10 ms


def test_so_are_too_many_ids_of_an_abort():
    wire_sizes.check_abort(b"\x0a\x01a" * 1024)
    with pytest.raises(InvalidRequestError, match="request_ids"):
        wire_sizes.check_abort(many(b"\x0a\x00"))


def test_the_largest_requests_that_can_be_meant_pass():
    message = generation_pb2.GenerateRequest(
        request_id="r" * 128,
        sampling=generation_pb2.SamplingParams(
            logit_bias={2**31 + i: 100.0 for i in range(300)},
            stop=["s" * 256] * 16,
            bad_words=["b" * 256] * 64,
            allowed_token_ids=[2**31] * 4096,
            stop_token_ids=[2**31] * 64,
        ),
        debug=types_pb2.DebugOptions(reference_token_ids=[2**31] * 2**17),
    )
    for index in range(16):
        message.resumed.add(index=index, token_ids=[2**16] * 2**14)
    for _ in range(4096):
        message.chat.messages.add(role="assistant", content="c" * 100)
    assert 1.4 < wire_sizes.MAX_SAMPLING_BYTES / message.sampling.ByteSize() < 1.5
    begin = time.thread_time()
    check(message.SerializeToString())
    assert time.thread_time() - begin < 0.05  # measured: 11 ms
    message.token_ids.ids.extend([2**20] * 2**20)
    check(message.SerializeToString())
    message.text = "t" * 4_000_000
    check(message.SerializeToString())


def test_ids_that_somebody_does_not_pack_are_taken_up_to_a_number():
    check(field(3, b"\x08\x05" * 4096))
    with pytest.raises(InvalidRequestError, match="token_ids has over 4096 unpacked"):
        check(field(3, b"\x08\x05" * 4097))


@given(st.binary(max_size=200))
def test_what_is_no_protobuf_is_left_to_protobuf(data):
    check(data)
    wire_sizes.check_abort(data)


@pytest.mark.parametrize(("number", "inner"), [(3, 1), (7, 2), (10, 1)])
def test_packed_ids_are_counted(number, inner):
    """One of 128 and more takes two bytes."""
    fits = field(number, field(inner, b"\x05" * (CONTEXT - 1) + b"\xac\x02"))
    check(fits)
    with pytest.raises(InvalidRequestError, match=str(CONTEXT + 1)):
        check(field(number, field(inner, b"\x05" * (CONTEXT - 1) + b"\xac\x02\x05")))


ORDERS = {
    "texts": many(b"\x0a\x00"),
    "messages": field(2, many(b"\x0a\x00")),
    "a message of many roles": field(2, field(1, many(b"\x0a\x00"))),
}
IDS = {
    "packed": field(1, many(b"\x05")),
    "in packs": many(field(1, b"\x05" * 500)),
    "one by one": many(b"\x08\x05"),
}


@pytest.mark.parametrize("data", ORDERS.values(), ids=ORDERS)
def test_too_many_of_anything_to_tokenize_are_refused_in_little_time(data):
    begin = time.thread_time()
    with pytest.raises(InvalidRequestError, match="want at most"):
        wire_sizes.check_tokenize(data)
    assert time.thread_time() - begin < 0.05


@pytest.mark.parametrize("data", IDS.values(), ids=IDS)
def test_too_many_ids_to_turn_into_text_are_refused_in_little_time(data):
    begin = time.thread_time()
    with pytest.raises(InvalidRequestError, match="token_ids has"):
        wire_sizes.check_detokenize(data)
    assert time.thread_time() - begin < 0.05


def test_as_many_as_there_may_be_pass():
    wire_sizes.check_tokenize(field(1, b"t" * 4_000_000))
    chat = generation_pb2.TokenizeRequest()
    for _ in range(4096):
        chat.chat.messages.add(role="assistant", content="c" * 100)
    wire_sizes.check_tokenize(chat.SerializeToString())
    ids = generation_pb2.DetokenizeRequest(token_ids=[2**21] * 1_000_000)
    wire_sizes.check_detokenize(ids.SerializeToString())
    with pytest.raises(InvalidRequestError, match="1000001"):
        wire_sizes.check_detokenize(ids.SerializeToString() + b"\x08\x05")
