"""Tokenization and token bytes <-> protobuf, both directions. Values only; knows no ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.api import Message, TokenizeOrder, TokenizerInfo
from minedraft.errors import InvalidRequestError
from minedraft.transport.fields import extend_field, set_field
from minedraft.types import SamplingDefaults, TokenLogprobs
from minedraft.v1 import generation_pb2, types_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DEFAULTS = tuple(generation_pb2.SamplingDefaults.DESCRIPTOR.fields_by_name)


def order_to_proto(order: TokenizeOrder) -> generation_pb2.TokenizeRequest:
    """TokenizeOrder -> message.

    Raises:
        InvalidRequestError: both or neither of text and messages, or a value of a wrong type.
    """
    if (order.text is None) == (order.messages is None):
        found = "neither" if order.text is None else "both"
        raise InvalidRequestError(
            f"text: want exactly one of text and messages, got {found}", field="text"
        )
    message = generation_pb2.TokenizeRequest()
    for name in ("parse_special_tokens", "add_special_tokens"):
        set_field(message, name, getattr(order, name), name)
    if order.text is not None:
        set_field(message, "text", order.text, "text")
    else:
        chat_to_proto(message.chat, order.messages or ())
    return message


def order_from_proto(message: generation_pb2.TokenizeRequest) -> TokenizeOrder:
    """Message -> TokenizeOrder.

    Raises:
        InvalidRequestError: neither a text nor a chat.
    """
    which = message.WhichOneof("prompt")
    if which is None:
        raise InvalidRequestError("text: want one of text and chat, got neither", field="text")
    adds = message.add_special_tokens if message.HasField("add_special_tokens") else True
    return TokenizeOrder(
        text=message.text if which == "text" else None,
        messages=chat_from_proto(message.chat) if which == "chat" else None,
        parse_special_tokens=message.parse_special_tokens,
        add_special_tokens=adds,
    )


def chat_to_proto(chat: generation_pb2.Chat, messages: Sequence[Message]) -> None:
    """Fill in a chat.

    Raises:
        InvalidRequestError: a role or a content that is no text.
    """
    chat.SetInParent()  # an empty one is still the prompt, for the server to refuse
    for i, entry in enumerate(messages):
        added = chat.messages.add()
        set_field(added, "role", entry.role, f"messages[{i}].role")
        set_field(added, "content", entry.content, f"messages[{i}].content")


def chat_from_proto(chat: generation_pb2.Chat) -> tuple[Message, ...]:
    """Chat -> messages."""
    return tuple(Message(entry.role, entry.content) for entry in chat.messages)


def ids_to_proto(
    token_ids: Iterable[int], *, skip_special_tokens: bool
) -> generation_pb2.DetokenizeRequest:
    """Ids -> message.

    Raises:
        InvalidRequestError: an id that is no number of the wire.
    """
    message = generation_pb2.DetokenizeRequest()
    extend_field(message, "token_ids", token_ids, "token_ids")
    set_field(message, "skip_special_tokens", skip_special_tokens, "skip_special_tokens")
    return message


def tokenizer_info_to_proto(info: TokenizerInfo) -> generation_pb2.GetTokenizerInfoResponse:
    """TokenizerInfo -> message."""
    return generation_pb2.GetTokenizerInfoResponse(
        vocab_size=info.vocab_size,
        chat_template=info.chat_template,
        named_tokens=dict(info.named_tokens),
    )


def tokenizer_info_from_proto(message: generation_pb2.GetTokenizerInfoResponse) -> TokenizerInfo:
    """Message -> TokenizerInfo."""
    return TokenizerInfo(message.vocab_size, message.chat_template, dict(message.named_tokens))


def defaults_to_proto(defaults: SamplingDefaults) -> generation_pb2.SamplingDefaults:
    """SamplingDefaults -> message."""
    return generation_pb2.SamplingDefaults(**{name: getattr(defaults, name) for name in _DEFAULTS})


def defaults_from_proto(message: generation_pb2.SamplingDefaults) -> SamplingDefaults:
    """Message -> SamplingDefaults."""
    named = {name: getattr(message, name) for name in _DEFAULTS if message.HasField(name)}
    return SamplingDefaults(**named)


def spelled_to_proto(entry: TokenLogprobs) -> types_pb2.PositionLogprobs:
    """TokenLogprobs with their bytes -> message."""
    spelled = entry.top_bytes or (b"",) * len(entry.top)
    return types_pb2.PositionLogprobs(
        token=types_pb2.TokenLogprob(
            token_id=entry.token_id, logprob=entry.logprob, token_bytes=entry.token_bytes
        ),
        top=[
            types_pb2.TokenLogprob(token_id=i, logprob=value, token_bytes=token_bytes)
            for (i, value), token_bytes in zip(entry.top, spelled, strict=True)
        ],
    )


def spelled_from_proto(message: types_pb2.PositionLogprobs) -> TokenLogprobs:
    """Message -> TokenLogprobs with their bytes."""
    top_bytes = tuple(entry.token_bytes for entry in message.top)
    return TokenLogprobs(
        token_id=message.token.token_id,
        logprob=message.token.logprob,
        top=tuple((entry.token_id, entry.logprob) for entry in message.top),
        token_bytes=message.token.token_bytes,
        top_bytes=top_bytes if any(top_bytes) else (),
    )
