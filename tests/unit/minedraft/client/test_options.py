from __future__ import annotations

import re

import pytest

from minedraft.api import Message
from minedraft.client.options import GenerateOptions, build_request
from minedraft.errors import InvalidRequestError
from minedraft.transport.public_codec import request_to_proto
from minedraft.types import DebugOptions

NOT_SAMPLING = (
    "speculation",
    "request_id",
    "parse_special_tokens",
    "priority",
    "cache_salt",
    "debug",
)


def refusal(prompt=None, messages=None, **options) -> InvalidRequestError:
    """What a call with these arguments is told before anything is sent."""
    with pytest.raises(InvalidRequestError) as caught:
        request_to_proto(build_request(prompt, messages, options))  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("name", GenerateOptions.__annotations__)
@pytest.mark.parametrize("value", [object(), 2.5j, [None], {"a": object()}])
def test_an_option_of_a_wrong_type_is_refused_by_name_and_value(name, value):
    err = refusal("a", **{name: value})
    assert err.field == (name if name in NOT_SAMPLING else f"sampling.{name}")
    assert str(err).startswith(err.field)


@pytest.mark.parametrize("name", GenerateOptions.__annotations__)
def test_none_is_a_value_of_four_options_alone(name):
    if name == "debug":
        assert build_request("a", None, {name: None}).debug is None
    elif name in {"max_tokens", "seed", "logprobs"}:
        assert getattr(build_request("a", None, {name: None}).sampling, name) is None
    else:
        assert "=None: want" in str(refusal("a", **{name: None}))


@pytest.mark.parametrize("n", ["2", 2.5, 0, -1, 17, 1_000_000, pytest.param(10**5000, id="long")])
def test_n_is_checked_before_anything_is_kept_for_so_many_samples(n):
    err = refusal("a", n=n)
    assert err.field == "sampling.n"
    assert str(err).endswith("want an integer 1..16")


@pytest.mark.parametrize("bias", [[(1, 2.0)], "ab", 5])
def test_logit_bias_is_a_mapping(bias):
    assert str(refusal("a", logit_bias=bias)).startswith(f"sampling.logit_bias={bias!r}: want")


@pytest.mark.parametrize("value", [b"abc", bytearray(b"abc"), memoryview(b"abc"), {1: 2}, 5])
def test_what_only_looks_like_token_ids_is_refused(value):
    assert refusal(value).field == "prompt"
    for name in ("stop_token_ids", "allowed_token_ids", "bad_words", "stop"):
        assert refusal("a", **{name: value}).field == f"sampling.{name}"
    reference = DebugOptions(reference_token_ids=value)
    if value != {1: 2}:
        assert refusal("a", debug=reference).field == "debug.reference_token_ids"


@pytest.mark.parametrize("prompt", [1.5, True, object(), [b"a"], ["a"], [1.5], [-1]])
def test_a_prompt_is_text_or_ids(prompt):
    assert refusal(prompt).field in {"prompt", "token_ids"}


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (5, "messages=5: want a list"),
        ("hi", "messages='hi': want a list"),
        ({"role": "user", "content": "a"}, "messages={'role': "),
        ([5], "messages[0]: want `role` and `content`, got int"),
        ([Message("user", "a"), {"role": "user"}], "messages[1]: want `role`"),
        ([(1, 2)], "messages[0]: want `role` and `content`, got tuple"),
        ([{"role": "user", "content": 5}], "messages[0].content=5"),
    ],
)
def test_a_chat_is_a_list_of_messages(messages, message):
    err = refusal(messages=messages)
    assert re.match(re.escape(message), str(err))
    assert err.field.startswith("messages")


def test_an_unknown_option_and_two_prompts_are_refused():
    assert refusal("a", topk=3).field == "topk"
    assert refusal("a", messages=[]).field == "prompt"
    assert refusal().field == "prompt"
