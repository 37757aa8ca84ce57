"""Checks counts in the message of a request, before each element becomes a Python object.

They are made on the event loop. What protobuf itself costs is bounded by `wire_sizes`. Refuses more
than `validation` would let pass, in its words; it knows no other ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft import validation
from minedraft.api import MAX_TOKENIZED
from minedraft.validation import check_count

if TYPE_CHECKING:
    from minedraft.v1 import generation_pb2


def check_generate(message: generation_pb2.GenerateRequest, *, max_model_len: int) -> None:
    """Check a request before it is decoded.

    Args:
        message: As it came.
        max_model_len: Most tokens of one sequence.

    Raises:
        InvalidRequestError: A field has more elements than it may have.
    """
    sampling = message.sampling
    check_count("sampling.logit_bias", len(sampling.logit_bias), validation.MAX_LOGIT_BIAS)
    check_count("sampling.stop", len(sampling.stop), validation.MAX_STOP_STRINGS)
    check_count(
        "sampling.stop_token_ids", len(sampling.stop_token_ids), validation.MAX_STOP_TOKEN_IDS
    )
    check_count("sampling.bad_words", len(sampling.bad_words), validation.MAX_BAD_WORDS)
    check_count(
        "sampling.allowed_token_ids",
        len(sampling.allowed_token_ids),
        validation.MAX_ALLOWED_TOKEN_IDS,
    )
    check_count("debug.reference_token_ids", len(message.debug.reference_token_ids), max_model_len)
    check_count("chat.messages", len(message.chat.messages), validation.MAX_CHAT_MESSAGES)
    if len(message.token_ids.ids) >= max_model_len:
        raise validation.prompt_too_long(len(message.token_ids.ids), max_model_len)
    check_count("resumed", len(message.resumed), validation.MAX_SAMPLES)
    for sample in message.resumed:
        check_count("resumed.token_ids", len(sample.token_ids), max_model_len)


def check_tokenize(message: generation_pb2.TokenizeRequest) -> None:
    """Check an order to tokenize before it is decoded.

    Raises:
        InvalidRequestError: Too many messages.
    """
    check_count("chat.messages", len(message.chat.messages), validation.MAX_CHAT_MESSAGES)


def check_detokenize(message: generation_pb2.DetokenizeRequest) -> None:
    """Check ids before they are decoded.

    Raises:
        InvalidRequestError: Too many.
    """
    check_count("token_ids", len(message.token_ids), MAX_TOKENIZED)


def check_abort(message: generation_pb2.AbortRequest) -> None:
    """Check an abort before it is decoded.

    Raises:
        InvalidRequestError: Too many ids.
    """
    check_count("request_ids", len(message.request_ids), validation.MAX_ABORT_IDS)
    check_count("resume_tokens", len(message.resume_tokens), validation.MAX_ABORT_IDS)
