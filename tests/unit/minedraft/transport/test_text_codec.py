from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.api import Message, TokenizeOrder
from minedraft.errors import InvalidRequestError
from minedraft.transport import text_codec
from minedraft.types import SamplingDefaults, TokenLogprobs
from minedraft.v1 import generation_pb2

CHAT = (Message("user", "hi"),)


@pytest.mark.parametrize("parse", [True, False])
@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("prompt", [{"text": ""}, {"text": "hi"}, {"messages": CHAT}])
def test_an_order_arrives_as_it_was_sent(prompt, parse, adds):
    order = TokenizeOrder(**prompt, parse_special_tokens=parse, add_special_tokens=adds)
    assert text_codec.order_from_proto(text_codec.order_to_proto(order)) == order


def test_who_does_not_say_gets_special_tokens_around_a_text():
    assert text_codec.order_from_proto(generation_pb2.TokenizeRequest(text="hi")).add_special_tokens


@pytest.mark.parametrize(
    "order",
    [
        TokenizeOrder(),
        TokenizeOrder(text="a", messages=CHAT),
        TokenizeOrder(text=5),
        TokenizeOrder(text="a", add_special_tokens="yes"),
    ],
)
def test_what_is_no_order_is_refused_by_name_before_it_is_sent(order):
    with pytest.raises(InvalidRequestError, match=r"text|add_special_tokens"):
        text_codec.order_to_proto(order)


def test_an_order_without_anything_is_refused():
    with pytest.raises(InvalidRequestError, match="neither"):
        text_codec.order_from_proto(generation_pb2.TokenizeRequest())


@pytest.mark.parametrize("ids", [(-1,), (2**32,), ("a",), b"ab", (True,)])
def test_ids_that_are_none_are_refused_by_name(ids):
    with pytest.raises(InvalidRequestError, match="token_ids"):
        text_codec.ids_to_proto(ids, skip_special_tokens=False)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.sampled_from([0.0, 0.5]),
            "top_k": st.integers(0, 2**32 - 1),
            "top_p": st.just(0.5),
            "min_p": st.just(0.25),
            "repetition_penalty": st.just(1.5),
            "max_tokens": st.integers(1, 2**20),
        },
    )
)
def test_a_recommendation_that_is_0_differs_from_none(values):
    defaults = SamplingDefaults(**values)
    message = text_codec.defaults_to_proto(defaults)
    assert text_codec.defaults_from_proto(message) == defaults


@pytest.mark.parametrize(
    "entry",
    [
        TokenLogprobs(5, -0.5),
        TokenLogprobs(5, -0.5, ((5, -0.5), (6, -1.0))),
        TokenLogprobs(5, -0.5, ((5, -0.5), (6, -1.0)), b"\xf0\x9f", (b"\xf0\x9f", b"")),
    ],
)
def test_bytes_of_tokens_arrive_beside_their_probabilities(entry):
    assert text_codec.spelled_from_proto(text_codec.spelled_to_proto(entry)) == entry
