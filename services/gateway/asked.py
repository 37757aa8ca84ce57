"""What a client asks of `/v1/completions` and `/v1/chat/completions`, read from the body. Pure.

A field is honoured, or refused by name; what no client sends to mean something is ignored.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from minedraft.api import Message
from minedraft.errors import InvalidRequestError
from minedraft.services.gateway.body import as_ids, as_integer, as_number, as_text, refuse
from minedraft.services.gateway.unsupported import check_unsupported
from minedraft.types import Speculation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minedraft.client.options import GenerateOptions
    from minedraft.services.gateway.body import Body

MAX_PROMPTS: Final = 64
"""Most prompts of one request."""
MAX_SAMPLES_HERE: Final = 256
"""Most choices of one request: prompts times n. The coordinator bounds n alone."""
MAX_LOGPROBS: Final = 20
_MAX_MESSAGES: Final = 4096
_MAX_PARTS: Final = 4096
_SEED_BITS: Final = 53
"""Seeds that are drawn here fit a double, so that every JSON client can send one back."""
_NUMBERS: Final = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_INTEGERS: Final = ("top_k", "min_tokens", "n", "priority")
_FLAGS: Final = ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens")
_TEXTS: Final = ("stop", "bad_words")
_IDS: Final = ("stop_token_ids", "allowed_token_ids")

Prompt = str | list[int]


def _no_options() -> GenerateOptions:
    return {}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a client."""

    is_chat: bool
    prompts: tuple[Prompt, ...] = ()
    """Of a completion: one or more."""
    messages: tuple[Message, ...] | None = None
    """Of a chat."""
    options: GenerateOptions = field(default_factory=_no_options)
    """For `Client.stream`, of every prompt."""
    model: str | None = None
    """Name that was asked for; None: any."""
    stream: bool = False
    include_usage: bool = False
    """A stream ends with a chunk of usage."""
    continuous_usage: bool = False
    """Every chunk has the usage so far."""
    echo: bool = False
    return_token_ids: bool = False
    tokens_as_ids: bool = False
    """Log-probabilities name tokens `token_id:N`."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The client's names of fields, where they are not ours."""

    @property
    def n(self) -> int:
        """Choices per prompt."""
        return self.options.get("n", 1)

    @property
    def num_choices(self) -> int:
        """Choices of the whole answer."""
        return self.n * max(1, len(self.prompts))

    @property
    def logprobs(self) -> int | None:
        """Likeliest tokens to tell beside the emitted one; None: no log-probabilities."""
        return self.options.get("logprobs")


def read_completion(body: Body) -> Asked:
    """Read the body of `/v1/completions`.

    Raises:
        InvalidRequestError: names the field.
    """
    check_unsupported(body, is_chat=False)
    prompts = _prompts(body.raw("prompt"))
    options = _sampling(body)
    logprobs = body.integer("logprobs")
    if logprobs is not None:
        _check_logprobs("logprobs", logprobs)
        options["logprobs"] = logprobs
    max_tokens = body.integer("max_tokens")
    if max_tokens is not None:
        options["max_tokens"] = max_tokens
    # As every server of this API: a template that the client applied spells special tokens out.
    options["parse_special_tokens"] = body.flag("parse_special_tokens", default=True)
    if body.flag("echo"):
        _check_echo(prompts, logprobs)
    if len(prompts) * options.get("n", 1) > MAX_SAMPLES_HERE:
        refuse("n", options.get("n"), f"at most {MAX_SAMPLES_HERE} choices of all prompts together")
    return Asked(
        is_chat=False,
        prompts=prompts,
        options=options,
        echo=body.flag("echo"),
        **_common(body),
    )


def read_chat(body: Body) -> Asked:
    """Read the body of `/v1/chat/completions`.

    Raises:
        InvalidRequestError: names the field.
    """
    check_unsupported(body, is_chat=True)
    options = _sampling(body)
    names = {"prompt": "messages", "logprobs": "top_logprobs"}
    top = body.integer("top_logprobs")
    if body.flag("logprobs"):
        _check_logprobs("top_logprobs", top or 0)
        options["logprobs"] = top or 0
    elif top:
        refuse("top_logprobs", top, "0, or logprobs true beside it")
    max_tokens = body.integer("max_tokens")
    if body.has("max_completion_tokens"):
        names["max_tokens"] = "max_completion_tokens"
        max_tokens = body.integer("max_completion_tokens")
    if max_tokens is not None:
        options["max_tokens"] = max_tokens
    return Asked(
        is_chat=True,
        messages=read_messages(body.raw("messages")),
        options=options,
        names=names,
        **_common(body),
    )


def read_messages(value: object) -> tuple[Message, ...]:
    """Read a chat: contents are text, or lists of text parts.

    Raises:
        InvalidRequestError: names the message.
    """
    if not isinstance(value, list) or not value:
        refuse("messages", value, "a list of one or more messages")
    if len(value) > _MAX_MESSAGES:
        raise InvalidRequestError(
            f"messages has {len(value)} entries, want at most {_MAX_MESSAGES}", field="messages"
        )
    return tuple(_message(f"messages[{index}]", each) for index, each in enumerate(value))


def _common(body: Body) -> dict[str, Any]:
    stream_options = body.raw("stream_options")
    if stream_options is not None and not isinstance(stream_options, dict):
        refuse("stream_options", stream_options, "an object")
    flags = {}
    for name in ("include_usage", "continuous_usage_stats"):
        value = (stream_options or {}).get(name)
        if value is not None and not isinstance(value, bool):
            refuse(f"stream_options.{name}", value, "true or false")
        flags[name] = bool(value)
    return {
        "model": body.text("model"),
        "stream": body.flag("stream"),
        "include_usage": flags["include_usage"],
        "continuous_usage": flags["continuous_usage_stats"],
        "return_token_ids": body.flag("return_token_ids"),
        "tokens_as_ids": body.flag("return_tokens_as_token_ids"),
    }


def _sampling(body: Body) -> GenerateOptions:
    options: dict[str, Any] = {}
    for read, names in (
        (body.number, _NUMBERS),
        (body.integer, _INTEGERS),
        (body.flag, _FLAGS),
        (body.texts, _TEXTS),
        (body.ids, _IDS),
        (body.text, ("cache_salt",)),
    ):
        options |= {name: read(name) for name in names if body.has(name)}
    if options.get("top_k") == -1:  # what vLLM calls off
        options["top_k"] = 0
    if body.has("logit_bias"):
        options["logit_bias"] = _logit_bias(body.raw("logit_bias"))
    seed = body.integer("seed")
    options["seed"] = secrets.randbits(_SEED_BITS) if seed is None else _seed(seed)
    if body.has("speculative"):
        options["speculation"] = _speculation(body.raw("speculative"))
    return options  # type: ignore[return-value]  # built by name


def _seed(seed: int) -> int:
    """Read a seed; the API's is a signed integer of 64 bits, the wire's an unsigned one."""
    if not -(2**63) <= seed < 2**64:
        refuse("seed", seed, "an integer of 64 bits")
    return seed % 2**64


def _speculation(value: object) -> Speculation:
    if value is True:
        return Speculation()
    if value is False:
        return Speculation(num_draft_tokens=0)
    if not isinstance(value, dict) or value.keys() - {"k"}:
        refuse("speculative", value, 'true, false or {"k": N}')
    k = value.get("k")
    return Speculation(None if k is None else as_integer("speculative.k", k))


def _logit_bias(value: object) -> dict[int, float]:
    if not isinstance(value, dict):
        refuse("logit_bias", value, "an object from token id to bias")
    found = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdigit() and len(key) <= len(str(2**32))):
            refuse("logit_bias", key, "token ids as keys")
        found[int(key)] = as_number(f"logit_bias[{key}]", bias)
    return found


def _check_echo(prompts: tuple[Prompt, ...], logprobs: int | None) -> None:
    if logprobs is not None:
        refuse("echo", True, "false beside logprobs: prompts have no log-probabilities here")
    if not all(isinstance(prompt, str) for prompt in prompts):
        refuse("echo", True, "false for a prompt of token ids")


def _check_logprobs(name: str, value: int) -> None:
    if not 0 <= value <= MAX_LOGPROBS:
        refuse(name, value, f"an integer 0..{MAX_LOGPROBS}")


def _prompts(value: object) -> tuple[Prompt, ...]:
    """Read text, token ids, or a list of either."""
    if isinstance(value, str):
        return (as_text("prompt", value),)
    if not isinstance(value, list):
        refuse("prompt", value, "a string, a list of token ids, or a list of either")
    if not value:
        raise InvalidRequestError("prompt is empty, want one or more", field="prompt")
    if type(value[0]) is int:
        return (as_ids("prompt", value),)
    if len(value) > MAX_PROMPTS:
        raise InvalidRequestError(
            f"prompt has {len(value)} entries, want at most {MAX_PROMPTS}", field="prompt"
        )
    return tuple(
        as_text(f"prompt[{index}]", each)
        if isinstance(each, str)
        else as_ids(f"prompt[{index}]", each)
        for index, each in enumerate(value)
    )


def _message(name: str, value: object) -> Message:
    if not isinstance(value, dict):
        refuse(name, value, "an object with role and content")
    role = as_text(f"{name}.role", value.get("role"))
    if value.get("tool_calls"):
        refuse(f"{name}.tool_calls", value["tool_calls"], "none: this server calls no tools")
    content = _content(f"{name}.content", value.get("content"))
    return Message("system" if role == "developer" else role, content)


def _content(name: str, value: object) -> str:
    if isinstance(value, list):
        if len(value) > _MAX_PARTS:
            raise InvalidRequestError(
                f"{name} has {len(value)} parts, want at most {_MAX_PARTS}", field="messages"
            )
        return "\n".join(_part(f"{name}[{index}]", part) for index, part in enumerate(value))
    return as_text(name, value)


def _part(name: str, value: object) -> str:
    if not isinstance(value, dict) or value.get("type") != "text":
        kind = value.get("type") if isinstance(value, dict) else value
        refuse(f"{name}.type", kind, "text: this server reads nothing else")
    return as_text(f"{name}.text", value.get("text"))
