"""services/gateway/refusal.py: errors as HTTP says them. Each row over HTTP is in test_answer."""

from __future__ import annotations

import json

import pytest

from minedraft.errors import (
    AuthenticationError,
    DuplicateRequestError,
    InvalidRequestError,
    MineDraftError,
    PermissionDeniedError,
    QueueFullError,
    StateError,
)
from minedraft.services.gateway.refusal import refusal_of, upstream_refusal_of
from minedraft.transport.status import BY_NAME


@pytest.mark.parametrize(
    ("field", "message", "names", "param", "said"),
    [
        ("sampling.temperature", "sampling.temperature is nan, want more", {}, "temperature",
         "temperature is nan, want more"),
        ("sampling.max_tokens", "prompt has 9 tokens and sampling.max_tokens is 5",
         {"max_tokens": "max_completion_tokens"}, "max_completion_tokens",
         "prompt has 9 tokens and max_completion_tokens is 5"),
        ("chat.messages", "chat.messages[0].role is 'x', want one of", {}, "messages",
         "messages[0].role is 'x', want one of"),
        ("text", "text has 9 bytes, want at most 3", {}, "prompt",
         "prompt has 9 bytes, want at most 3"),
        ("speculation.num_draft_tokens", "speculation.num_draft_tokens is 99", {}, "speculative",
         "speculative is 99"),
        ("prompt", "prompt is empty", {"prompt": "messages"}, "messages", "prompt is empty"),
        ("", "the body is not valid JSON", {}, None, "the body is not valid JSON"),
    ],
)  # fmt: skip
def test_a_field_has_the_clients_own_name(field, message, names, param, said):
    refusal = refusal_of(InvalidRequestError(message, field=field), names)
    assert (refusal.status, refusal.param, refusal.message) == (400, param, said)


def test_every_error_of_ours_has_a_status_that_clients_do_not_misread():
    for name, kind in BY_NAME.items():
        if kind is MineDraftError:
            continue
        refusal = refusal_of(kind("why"))
        assert 400 <= refusal.status < 600, name
        assert refusal.status not in {408, 409}, name  # clients would send it again
        headers = dict(refusal.headers)
        if refusal.status in {429, 503}:
            assert int(headers["retry-after"]) >= 1, name
        if refusal.status in {500, 504}:
            assert headers["x-should-retry"] == "false", name
        assert json.loads(refusal.encoded)["error"].keys() == {"message", "type", "param", "code"}


def test_a_duplicate_id_is_400():
    assert refusal_of(DuplicateRequestError("in use")).status == 400


def test_the_delay_of_a_full_queue_is_told_in_whole_seconds():
    err = QueueFullError("full")
    err.retry_after_s = 2.3
    assert dict(refusal_of(err).headers)["retry-after"] == "3"


def test_what_is_not_ours_says_its_class_alone():
    refusal = refusal_of(StateError("row 5 of 'my prompt'"))
    assert refusal.status == 500
    assert "prompt" not in refusal.message


@pytest.mark.parametrize("kind", [AuthenticationError, PermissionDeniedError])
def test_that_the_gateway_is_refused_is_no_fault_of_its_client(kind):
    assert upstream_refusal_of(kind("token"), {}).status == 500
