from __future__ import annotations

import pytest

from minedraft.errors import InvalidRequestError
from minedraft.transport.request_sizes import check_abort, check_generate
from minedraft.v1 import generation_pb2

SAMPLING = {
    "stop": (["a"], 16),
    "stop_token_ids": ([1], 64),
    "bad_words": (["a"], 64),
    "allowed_token_ids": ([1], 4096),
}


def refusal(message: generation_pb2.GenerateRequest) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        check_generate(message, max_model_len=10)
    return caught.value.field


@pytest.mark.parametrize("name", SAMPLING)
def test_lists_of_sampling_have_the_bounds_of_validation(name):
    element, most = SAMPLING[name]
    message = generation_pb2.GenerateRequest(token_ids={"ids": [1]})
    getattr(message.sampling, name).extend(element * most)
    check_generate(message, max_model_len=10)
    getattr(message.sampling, name).extend(element)
    assert refusal(message) == f"sampling.{name}"


def test_biases_are_counted():
    message = generation_pb2.GenerateRequest(
        sampling=generation_pb2.SamplingParams(logit_bias=dict.fromkeys(range(301), 1.0))
    )
    assert refusal(message) == "sampling.logit_bias"


def test_lists_of_tokens_end_with_the_context():
    message = generation_pb2.GenerateRequest(token_ids={"ids": [1] * 9})
    message.debug.reference_token_ids.extend([1] * 10)
    message.resumed.add(token_ids=[1] * 10)
    check_generate(message, max_model_len=10)
    message.debug.reference_token_ids.append(1)
    assert refusal(message) == "debug.reference_token_ids"
    del message.debug.reference_token_ids[:]
    message.token_ids.ids.append(1)
    assert refusal(message) == "prompt"
    del message.token_ids.ids[:]
    message.resumed[0].token_ids.append(1)
    assert refusal(message) == "resumed.token_ids"
    del message.resumed[:]
    for _ in range(17):
        message.resumed.add()
    assert refusal(message) == "resumed"


def test_messages_are_counted():
    message = generation_pb2.GenerateRequest()
    for _ in range(4097):
        message.chat.messages.add()
    assert refusal(message) == "chat.messages"


def test_ids_of_an_abort_are_counted():
    check_abort(generation_pb2.AbortRequest(request_ids=["a"] * 1024))
    with pytest.raises(InvalidRequestError, match="request_ids has 1025 entries"):
        check_abort(generation_pb2.AbortRequest(request_ids=["a"] * 1025))
    with pytest.raises(InvalidRequestError, match="resume_tokens has 1025 entries"):
        check_abort(generation_pb2.AbortRequest(resume_tokens=[b"a"] * 1025))
