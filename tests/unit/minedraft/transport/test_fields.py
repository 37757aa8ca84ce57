from __future__ import annotations

import re

import pytest

from minedraft.errors import InvalidRequestError
from minedraft.transport.fields import extend_field, fill_map, set_field, shown
from minedraft.v1 import generation_pb2

LONG = 10**5000  # Python refuses to print it


@pytest.mark.parametrize("value", ["hot", [1], 10**400, pytest.param(LONG, id="long"), True])
def test_a_scalar_that_does_not_fit_is_refused_by_name(value):
    with pytest.raises(InvalidRequestError, match=re.escape(f"a.b={shown(value)}: ")) as caught:
        set_field(generation_pb2.SamplingParams(), "temperature", value, "a.b")
    assert caught.value.field == "a.b"


@pytest.mark.parametrize("value", [5, "ab", b"ab", bytearray(b"ab"), [-1], [2**32], [LONG], [True]])
def test_a_list_that_is_none_is_refused_by_name(value):
    message = generation_pb2.SamplingParams()
    with pytest.raises(InvalidRequestError, match=r"^a\.b=") as caught:
        extend_field(message, "stop_token_ids", value, "a.b")
    assert caught.value.field == "a.b"


@pytest.mark.parametrize(
    "entry", [(-1, 1.0), ("a", 1.0), (1, "a"), (1, 10**400), (LONG, 1.0), (True, 1.0), (1, True)]
)
def test_an_entry_that_does_not_fit_is_refused_by_name(entry):
    key, value = entry
    with pytest.raises(InvalidRequestError, match=re.escape(f"a.b: {shown(key)}: ")) as caught:
        fill_map(generation_pb2.SamplingParams(), "logit_bias", {key: value}, "a.b")
    assert caught.value.field == "a.b"


def test_what_fits_is_set():
    message = generation_pb2.SamplingParams()
    set_field(message, "top_k", 3, "top_k")
    extend_field(message, "stop", ("a", "b"), "stop")
    fill_map(message, "logit_bias", {4: 0.5}, "logit_bias")
    assert message == generation_pb2.SamplingParams(top_k=3, stop=["a", "b"], logit_bias={4: 0.5})


def test_a_long_value_is_cut():
    assert shown("x") == "'x'"
    assert len(shown("x" * 10_000)) < 100
    assert shown(LONG).startswith("int")
