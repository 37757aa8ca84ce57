"""The keyword arguments of a generation and how they become a request. Pure.

Checks types, and the one range that costs memory here; the service checks the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, TypeVar

from minedraft.api import GenerationRequest, Message
from minedraft.errors import InvalidRequestError
from minedraft.transport.fields import shown
from minedraft.types import DebugOptions, SamplingParams, Speculation
from minedraft.validation import MAX_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

Prompt = str | tuple[int, ...] | list[int]
"""Text, or token ids."""


class GenerateOptions(TypedDict, total=False):
    """Keyword arguments of `generate` and `stream`. `SamplingParams` documents the ranges."""

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
    """With coupled acceptance, the default, the same seed gives the same output with any drafts."""
    logprobs: int | None
    n: int
    speculation: Speculation
    """Per-request control of speculation; none of it changes the output with coupled acceptance,
    nor its distribution with rejection."""
    request_id: str
    """At most 128 characters, unique among live requests; drawn by the server if empty."""
    parse_special_tokens: bool
    """Whether a text prompt may spell out special tokens. By default such a spelling is text."""
    priority: int
    """-100..100; lower goes first and is preempted last. 0 by default."""
    cache_salt: str
    """At most 128 bytes of UTF-8. Cached prefixes are shared within one salt only."""
    debug: DebugOptions | None
    """Benchmarks and tests only: a server refuses it unless it was started to take it."""


_TUPLES = ("stop_token_ids", "bad_words", "allowed_token_ids")
_MAY_BE_NONE = ("max_tokens", "seed", "logprobs", "debug")
_PLAIN = ("request_id", "parse_special_tokens", "priority", "cache_salt")
"""Fields of the request itself, whose types the codec checks."""
_NOT_SAMPLING = ("speculation", "debug", *_PLAIN)
_NO_LISTS = (str, bytes, bytearray, memoryview, Mapping)
"""Iterables that are no lists of token ids; bytes would pass for one."""


def build_request(
    prompt: Prompt | None,
    messages: Sequence[Message | Mapping[str, str]] | None,
    options: GenerateOptions,
) -> GenerationRequest:
    """Turn keyword arguments into a request.

    Raises:
        InvalidRequestError: both or neither of `prompt` and `messages`, a message without role
            and content, an option that does not exist, or a value of a wrong type.
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
    for name, value in values.items():
        if value is None and name not in _MAY_BE_NONE:
            _refuse(_path(name), value, "a value, or no such argument")
    speculation = _instance("speculation", values.pop("speculation", Speculation()), Speculation)
    debug = values.pop("debug", None)
    plain: dict[str, Any] = {name: values.pop(name) for name in _PLAIN if name in values}
    if isinstance(values.get("stop"), str):
        values["stop"] = (values["stop"],)
    for name in ("stop", *_TUPLES):
        if name in values:
            values[name] = _tuple(_path(name), values[name], "a list")
    if not isinstance(values.get("logit_bias", {}), Mapping):
        _refuse("sampling.logit_bias", values["logit_bias"], "a mapping from token id to bias")
    _check_n(values.get("n", 1))
    return GenerationRequest(
        text=prompt if isinstance(prompt, str) else None,
        token_ids=(
            None
            if prompt is None or isinstance(prompt, str)
            else _tuple("prompt", prompt, "text or a list of token ids")
        ),
        messages=None if messages is None else build_messages(messages),
        sampling=SamplingParams(**values),  # type: ignore[arg-type]  # types: here and in the codec
        speculation=speculation,
        debug=None if debug is None else _instance("debug", debug, DebugOptions),
        **plain,
    )


def _path(name: str) -> str:
    return name if name in _NOT_SAMPLING else f"sampling.{name}"


def _check_n(value: object) -> None:
    """Check `n`: the client keeps the tokens of every sample, so it bounds n by itself."""
    if not isinstance(value, Integral) or not 1 <= int(value) <= MAX_SAMPLES:
        _refuse("sampling.n", value, f"an integer 1..{MAX_SAMPLES}")


def _instance(path: str, value: object, wanted: type[T]) -> T:
    if not isinstance(value, wanted):
        _refuse(path, value, f"a {wanted.__name__}")
    return value


def _refuse(path: str, value: object, want: str) -> NoReturn:
    raise InvalidRequestError(f"{path}={shown(value)}: want {want}", field=path)


def _tuple(path: str, value: object, want: str) -> tuple[Any, ...]:
    if isinstance(value, _NO_LISTS) or not isinstance(value, Iterable):
        _refuse(path, value, want)
    return tuple(value)


def build_messages(values: Iterable[Message | Mapping[str, str]]) -> tuple[Message, ...]:
    """Turn a chat into messages.

    Raises:
        InvalidRequestError: a message without role and content, or no list.
    """
    given = _tuple("messages", values, "a list of messages")
    return tuple(_message(index, value) for index, value in enumerate(given))


def _message(index: int, value: Message | Mapping[str, str]) -> Message:
    if isinstance(value, Message):
        return value
    try:
        return Message(role=value["role"], content=value["content"])
    except (LookupError, TypeError):
        raise InvalidRequestError(
            f"messages[{index}]: want `role` and `content`, got {type(value).__name__}",
            field="messages",
        ) from None
