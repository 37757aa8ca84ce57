"""services/gateway/asked.py: what the fields of a body mean, and what is refused by which name."""

from __future__ import annotations

import json

import pytest

from minedraft.api import Message
from minedraft.errors import InvalidRequestError
from minedraft.services.gateway.asked import read_chat, read_completion
from minedraft.services.gateway.body import Body, parse
from minedraft.services.gateway.documents import CHAT_FIELDS, COMPLETION_FIELDS
from minedraft.services.gateway.unsupported import NAMES
from minedraft.types import Speculation

USER = {"role": "user", "content": "hi"}


def completion(**body):
    return read_completion(Body({"prompt": "hi", **body}))


def chat(**body):
    return read_chat(Body({"messages": [USER], **body}))


@pytest.mark.parametrize("read", [completion, chat])
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("temperature", "hot", "temperature is 'hot'"),
        ("temperature", True, "temperature"),
        ("temperature", 10**400, "temperature"),
        ("top_k", 1.5, "top_k"),
        ("n", "2", "n is '2'"),
        ("stop", 3, "stop"),
        ("stop", ["a", 3], r"stop\[1\]"),
        ("stop", "\ud800", "half a surrogate"),
        ("stop_token_ids", [1, -1], r"stop_token_ids\[1\]"),
        ("stop_token_ids", [True], r"stop_token_ids\[0\]"),
        ("logit_bias", [1], "logit_bias"),
        ("logit_bias", {"a": 1}, "logit_bias"),
        ("logit_bias", {"1": "x"}, r"logit_bias\[1\]"),
        ("seed", 2**64, "seed"),
        ("seed", 1.5, "seed"),
        ("stream", "yes", "stream"),
        ("stream_options", 3, "stream_options"),
        ("stream_options", {"include_usage": 3}, "stream_options.include_usage"),
        ("speculative", {"depth": 3}, "speculative"),
        ("speculative", {"k": "x"}, "speculative.k"),
        ("tools", [{"type": "function"}], "tools"),
        ("tool_choice", "required", "tool_choice"),
        ("response_format", {"type": "json_object"}, "response_format"),
        ("guided_json", {"a": 1}, "guided_json"),
        ("best_of", 3, "best_of"),
        ("prompt_logprobs", 0, "prompt_logprobs"),
        ("suffix", "x", "suffix"),
        ("max_tokens", [], "max_tokens"),
        ("model", 3, "model"),
        ("cache_salt", "\udfff", "cache_salt"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(read, field, value, said):
    with pytest.raises(InvalidRequestError, match=said) as found:
        read(**{field: value})
    assert found.value.field == field


@pytest.mark.parametrize("read", [completion, chat])
def test_null_is_absent_and_what_asks_for_nothing_passes(read):
    fields = {*COMPLETION_FIELDS, *CHAT_FIELDS, *NAMES} - {"prompt", "messages"}
    asked = read(**dict.fromkeys(fields))
    options = {k: v for k, v in asked.options.items() if k not in {"seed", "parse_special_tokens"}}
    assert options == {}
    read(tools=[], tool_choice="none", best_of=1, suffix="", response_format={"type": "text"})
    read(tools=[{"type": "function"}], tool_choice="none")
    read(never_heard_of_it={"a": [1]}, user="me", metadata={})


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("text", ("text",)),
        ([1, 2], ([1, 2],)),
        (["a", "b"], ("a", "b")),
        ([[1], [2, 3]], ([1], [2, 3])),
        (["a", [1]], ("a", [1])),
    ],
)
def test_prompts_in_every_shape(value, want):
    assert completion(prompt=value).prompts == want


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "prompt is None"),
        ([], "prompt is empty"),
        (3, "prompt is 3"),
        ([1, "a"], r"prompt\[1\]"),
        (["a"] * 65, "65 entries, want at most 64"),
        ("\ud800", "half a surrogate"),
        ([[1.5]], r"prompt\[0\]\[0\]"),
    ],
)
def test_prompts_that_are_none(value, said):
    with pytest.raises(InvalidRequestError, match=said) as found:
        completion(prompt=value)
    assert found.value.field == "prompt"


def test_choices_are_bounded_over_all_prompts():
    with pytest.raises(InvalidRequestError, match="256"):
        completion(prompt=["a"] * 64, n=5)


def test_an_echo_that_cannot_be_is_refused():
    for more in ({"logprobs": 1}, {"prompt": [1, 2]}):
        with pytest.raises(InvalidRequestError, match="echo"):
            completion(echo=True, **more)
    with pytest.raises(InvalidRequestError, match="echo"):
        chat(echo=True)


def test_contents_of_text_parts_are_text():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = chat(messages=[{"role": "developer", "content": parts}, USER])
    assert asked.messages == (Message("system", "a\nb"), Message("user", "hi"))


@pytest.mark.parametrize(
    "message",
    [
        "hi",
        {"content": "hi"},
        {"role": "user"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": ["hi"]},
        {"role": "assistant", "content": "x", "tool_calls": [{}]},
        {"role": "user", "content": "\ud83d"},
    ],
)
def test_messages_that_are_none(message):
    with pytest.raises(InvalidRequestError, match=r"messages\[1\]") as found:
        chat(messages=[USER, message])
    assert found.value.field == "messages"


def test_no_messages():
    for value in (None, [], {}):
        with pytest.raises(InvalidRequestError, match="messages"):
            chat(messages=value)


def test_logprobs_of_a_chat():
    assert chat(logprobs=True, top_logprobs=5).logprobs == 5
    assert chat(logprobs=True).logprobs == 0
    assert chat(logprobs=False, top_logprobs=0).logprobs is None
    with pytest.raises(InvalidRequestError, match="top_logprobs"):
        chat(top_logprobs=3)
    with pytest.raises(InvalidRequestError, match="top_logprobs"):
        chat(logprobs=True, top_logprobs=21)


def test_speculation_off_and_a_depth():
    assert completion(speculative=False).options["speculation"] == Speculation(0)
    assert completion(speculative={"k": 3}).options["speculation"] == Speculation(3)
    assert completion(speculative=True).options["speculation"] == Speculation()


def test_a_seed_is_drawn_that_every_client_can_send_back():
    seeds = {completion().options["seed"] for _ in range(8)}
    assert len(seeds) == 8
    assert all(seed < 2**53 for seed in seeds)
    assert completion(seed=-1).options["seed"] == 2**64 - 1


def test_top_k_of_minus_one_is_off():
    assert completion(top_k=-1).options["top_k"] == 0


def test_the_newer_name_of_max_tokens_wins():
    asked = chat(max_tokens=3, max_completion_tokens=5)
    assert asked.options["max_tokens"] == 5
    assert asked.names["max_tokens"] == "max_completion_tokens"


class Watched(dict):
    """A body that notes which fields are looked at."""

    def __init__(self, values):
        super().__init__(values)
        self.seen = set()

    def get(self, key, default=None):
        self.seen.add(key)
        return super().get(key, default)


@pytest.mark.parametrize(
    ("read", "required", "fields"),
    [
        (read_completion, {"prompt": "a"}, COMPLETION_FIELDS),
        (read_chat, {"messages": [USER]}, CHAT_FIELDS),
    ],
)
def test_the_document_names_every_field_that_is_read(read, required, fields):
    body = Watched({**required, "logprobs": None})
    read(Body(body))
    more = {"top_logprobs"} & set(fields)
    refused = {*NAMES, "echo"} - set(fields)
    assert body.seen | more | {"max_completion_tokens"} - body.seen >= set(fields)
    assert body.seen - refused - set(fields) == set()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON at character 1"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"a": ' * 100_000, "nested too deep"),
    ],
)
def test_bodies_that_are_none(raw, said):
    with pytest.raises(InvalidRequestError, match=said):
        parse(raw)


def test_a_number_that_is_none_is_read_and_named_by_the_coordinator():
    asked = read_completion(parse(b'{"prompt": "a", "temperature": NaN}'))
    assert json.dumps(asked.options["temperature"]) == "NaN"
