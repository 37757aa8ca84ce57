"""Checks counts in the bytes of a request, before protobuf parses them.

Parsing holds the interpreter's lock, and a message of 4 MiB may say two million things: a fifth of
a second for everybody. So this steps over the fields, whose number and sizes are those of a
request that can be meant. Refuses too many; what is no protobuf it leaves to protobuf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft import validation
from minedraft.api import MAX_TOKENIZED
from minedraft.errors import InvalidRequestError
from minedraft.v1 import generation_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FIELDS: Final = 64
"""Of a request or one of its messages, elements of lists counted one by one."""
MAX_LIST_FIELDS: Final = 4096
"""Of a list of ids: whoever sends more packs them, as protobuf does by itself."""
MAX_SAMPLING_BYTES: Final = 1 << 16
"""1.4 times what all of its lists take at their longest."""

_REQUEST: Final = generation_pb2.GenerateRequest.DESCRIPTOR.fields_by_name
_CHAT: Final = _REQUEST["chat"].number
_TOKENIZED_CHAT: Final = generation_pb2.TokenizeRequest.DESCRIPTOR.fields_by_name["chat"].number
_SAMPLING: Final = _REQUEST["sampling"].number
_LISTS: Final = {
    _REQUEST[name].number: name for name in ("token_ids", "speculation", "resumed", "debug")
}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CONTINUED: Final = bytes(range(0x80, 0x100))
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}


def check_generate(data: bytes, *, max_model_len: int) -> None:
    """Check a serialized GenerateRequest.

    Args:
        data: As it came.
        max_model_len: Most tokens of one sequence.

    Raises:
        InvalidRequestError: It has more fields, or more token ids, than a request has.
    """
    num_messages = num_sampling_bytes = num_list_fields = 0
    for count, (number, start, end) in enumerate(_fields(data, 0, len(data)), 1):
        _check("request", "fields", count, MAX_FIELDS)
        if number == _SAMPLING:
            num_sampling_bytes += end - start
            _check("sampling", "bytes", num_sampling_bytes, MAX_SAMPLING_BYTES)
        elif number == _CHAT:
            num_messages = _check_chat(data, start, end, num_messages)
        elif number in _LISTS:
            for _, first, last in _fields(data, start, end):
                num_list_fields += 1
                _check(_LISTS[number], "unpacked elements", num_list_fields, MAX_LIST_FIELDS)
                if last - first > max_model_len:
                    _check_packed(_LISTS[number], data[first:last], max_model_len)


def check_tokenize(data: bytes) -> None:
    """Check a serialized TokenizeRequest.

    Raises:
        InvalidRequestError: It has more fields or messages than it may have.
    """
    num_messages = 0
    for count, (number, start, end) in enumerate(_fields(data, 0, len(data)), 1):
        _check("request", "fields", count, MAX_FIELDS)
        if number == _TOKENIZED_CHAT:
            num_messages = _check_chat(data, start, end, num_messages)


def check_detokenize(data: bytes) -> None:
    """Check a serialized DetokenizeRequest.

    Raises:
        InvalidRequestError: It has more ids than it may have, or too many of them unpacked.
    """
    num_ids = 0
    for count, (_, start, end) in enumerate(_fields(data, 0, len(data)), 1):
        _check("token_ids", "unpacked elements", count, MAX_LIST_FIELDS)
        num_ids += len(data[start:end].translate(None, _CONTINUED))
        validation.check_count("token_ids", num_ids, MAX_TOKENIZED)


def check_abort(data: bytes) -> None:
    """Check a serialized AbortRequest.

    Raises:
        InvalidRequestError: It has more ids than it may have.
    """
    for count, _ in enumerate(_fields(data, 0, len(data)), 1):
        _check("request_ids", "fields", count, 2 * validation.MAX_ABORT_IDS)


def _check_chat(data: bytes, start: int, end: int, num_messages: int) -> int:
    """Check messages; add their number to that of the messages before them, and return it."""
    for _, first, last in _fields(data, start, end):
        num_messages += 1
        _check("chat.messages", "entries", num_messages, validation.MAX_CHAT_MESSAGES)
        for count, _ in enumerate(_fields(data, first, last), 1):
            _check(f"chat.messages[{num_messages - 1}]", "fields", count, MAX_FIELDS)
    return num_messages


def _check_packed(field: str, ids: bytes, most: int) -> None:
    """Count packed ids: each ends with a byte below 128."""
    count = len(ids.translate(None, _CONTINUED))
    if count > most and field == "token_ids":
        raise validation.prompt_too_long(count, most)
    validation.check_count(field, count, most)


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Iterate over the fields of a message.

    Yields:
        Number, and where the content is. Ends at what is malformed.
    """
    while start < end:
        tag, start = _varint(data, start, end)
        wire_type = tag & 7
        if wire_type == _BYTES:
            size, start = _varint(data, start, end)
        elif wire_type == _VARINT:
            size = _varint(data, start, end)[1] - start
        elif wire_type in _FIXED_SIZES:
            size = _FIXED_SIZES[wire_type]
        else:
            return
        if start + size > end:
            return
        yield tag >> 3, start, start + size
        start += size


def _varint(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Read a number; return it and its end, which is beyond `end` if it is cut off."""
    value = shift = 0
    while start < end:
        byte = data[start]
        start += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 the bit that says that more follows
            return value, start
        shift += 7
        if shift > 63:  # noqa: PLR2004 no number of the wire has more than 64 bits
            break
    return value, end + 1


def _check(field: str, what: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidRequestError(
            f"{field} has over {most} {what}, want at most {most}", field=field
        )
