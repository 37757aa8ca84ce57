"""The keyword arguments of a generation and how they become a request. Pure; checks no ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from minedraft.api import GenerationRequest, Message
from minedraft.errors import InvalidRequestError
from minedraft.types import SamplingParams, Speculation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Prompt = str | tuple[int, ...] | list[int]
"""Text, or token ids."""


class GenerateOptions(TypedDict, total=False):
    """What `generate` and `stream` take by keyword. `SamplingParams` documents the ranges."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    max_tokens: int | None
    min_tokens: int
    stop: str | Sequence[str]
    """One stop string, or several."""
    stop_token_ids: Sequence[int]
    include_stop_str_in_output: bool
    ignore_eos: bool
    skip_special_tokens: bool
    bad_words: Sequence[str]
    allowed_token_ids: Sequence[int]
    seed: int | None
    logprobs: int | None
    n: int
    speculation: Speculation
    """Per-request control of speculation; none of it changes the output."""
    request_id: str
    """At most 128 characters, unique among live requests; drawn by the server if empty."""


_TUPLES = ("stop_token_ids", "bad_words", "allowed_token_ids")


def build_request(
    prompt: Prompt | None,
    messages: Sequence[Message | Mapping[str, str]] | None,
    options: GenerateOptions,
) -> GenerationRequest:
    """Turn what a caller wrote into a request.

    Raises:
        InvalidRequestError: both or neither of `prompt` and `messages`, a message without role
            and content, or an option that does not exist.
    """
    if (prompt is None) == (messages is None):
        found = "neither" if prompt is None else "both"
        raise InvalidRequestError(
            f"prompt: want exactly one of prompt and messages, got {found}", field="prompt"
        )
    values = dict(options)
    unknown = values.keys() - GenerateOptions.__annotations__.keys()
    if unknown:
        name = min(unknown)
        raise InvalidRequestError(f"{name}: no such option", field=name)
    speculation = values.pop("speculation", Speculation())
    request_id = values.pop("request_id", "")
    if isinstance(values.get("stop"), str):
        values["stop"] = (values["stop"],)
    for name in ("stop", *_TUPLES):
        if name in values:
            values[name] = _tuple(name, values[name])
    return GenerationRequest(
        text=prompt if isinstance(prompt, str) else None,
        token_ids=None if prompt is None or isinstance(prompt, str) else tuple(prompt),
        messages=None if messages is None else tuple(map(_message, messages)),
        sampling=SamplingParams(**values),  # type: ignore[arg-type]  # keys were checked above
        speculation=speculation,  # type: ignore[arg-type]
        request_id=request_id,  # type: ignore[arg-type]
    )


def _tuple(name: str, value: object) -> tuple[object, ...]:
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise InvalidRequestError(
            f"sampling.{name}={value!r}: want a list", field=f"sampling.{name}"
        )
    return tuple(value)


def _message(value: Message | Mapping[str, str]) -> Message:
    if isinstance(value, Message):
        return value
    try:
        return Message(role=value["role"], content=value["content"])
    except (KeyError, TypeError):
        raise InvalidRequestError(
            "messages: want `role` and `content` in every message", field="messages"
        ) from None
