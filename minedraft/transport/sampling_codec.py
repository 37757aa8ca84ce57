"""Sampling, speculation and debug options of a request <-> protobuf, both directions. Values only.

Unset means the default and an explicit 0 is a 0, for `validation` to take or to refuse.
"""

from __future__ import annotations

from typing import Any

from minedraft.transport.fields import extend_field, fill_map, set_field
from minedraft.types import DebugOptions, SamplingParams, Speculation
from minedraft.v1 import generation_pb2, types_pb2

_SCALARS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "min_tokens",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "seed",
    "logprobs",
    "n",
)
_LISTS = ("stop", "stop_token_ids", "bad_words", "allowed_token_ids")


def sampling_to_proto(params: SamplingParams) -> generation_pb2.SamplingParams:
    """SamplingParams -> message; None stays unset, everything else is explicit.

    Raises:
        InvalidRequestError: a value that does not fit its field.
    """
    message = generation_pb2.SamplingParams()
    for name in _SCALARS:
        value = getattr(params, name)
        if value is not None:
            set_field(message, name, value, f"sampling.{name}")
    for name in _LISTS:
        extend_field(message, name, getattr(params, name), f"sampling.{name}")
    fill_map(message, "logit_bias", params.logit_bias, "sampling.logit_bias")
    return message


def sampling_from_proto(message: generation_pb2.SamplingParams) -> SamplingParams:
    """Message -> SamplingParams; unset fields take their defaults."""
    values: dict[str, Any] = {}
    for name in _SCALARS:
        descriptor = message.DESCRIPTOR.fields_by_name[name]
        if descriptor.has_presence and not message.HasField(name):
            continue
        values[name] = getattr(message, name)
    for name in _LISTS:
        values[name] = tuple(getattr(message, name))
    return SamplingParams(**values, logit_bias=dict(message.logit_bias))


def speculation_to_proto(value: Speculation) -> generation_pb2.Speculation:
    """Speculation -> message.

    Raises:
        InvalidRequestError: a value that does not fit its field.
    """
    message = generation_pb2.Speculation()
    if value.num_draft_tokens is not None:
        name = "num_draft_tokens"
        set_field(message, name, value.num_draft_tokens, f"speculation.{name}")
    return message


def speculation_from_proto(message: generation_pb2.Speculation) -> Speculation:
    """Message -> Speculation."""
    return Speculation(
        num_draft_tokens=(
            message.num_draft_tokens if message.HasField("num_draft_tokens") else None
        )
    )


def debug_to_proto(value: DebugOptions) -> types_pb2.DebugOptions:
    """DebugOptions -> message.

    Raises:
        InvalidRequestError: a value that does not fit its field.
    """
    message = types_pb2.DebugOptions()
    name = "reference_token_ids"
    extend_field(message, name, value.reference_token_ids, f"debug.{name}")
    if value.synthetic_acceptance is not None:
        name = "synthetic_acceptance"
        set_field(message, name, value.synthetic_acceptance, f"debug.{name}")
    return message


def debug_from_proto(message: types_pb2.DebugOptions) -> DebugOptions:
    """Message -> DebugOptions."""
    return DebugOptions(
        reference_token_ids=tuple(message.reference_token_ids),
        synthetic_acceptance=(
            message.synthetic_acceptance if message.HasField("synthetic_acceptance") else None
        ),
    )
