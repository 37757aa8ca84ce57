"""Requests that cost their caller little and a careless service much, as bytes for the wire."""

from __future__ import annotations

from minedraft.v1 import generation_pb2

_SIZE = 4 * 2**20 - 64  # of 4 MiB that a message may have


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def many(element: bytes) -> bytes:
    """As often as a message holds it."""
    return element * (_SIZE // len(element))


WIRE = {
    "token ids one by one": field(3, many(b"\x08\x05")),
    "packed ids": field(3, field(1, many(b"\x05"))),
    "packed ids of a sample": field(7, field(2, many(b"\x05"))),
    "stop strings": field(5, many(b"\x5a\x00")),
    "stop ids": field(5, field(12, many(b"\x05"))),
    "sampling in pieces": many(field(5, b"\x5a\x00" * 1000)),
    "biases": field(5, many(b"\x42\x02\x08\x01")),
    "resumed": many(b"\x3a\x00"),
    "resumed ids one by one": field(7, many(b"\x10\x05")),
    "draft lengths one by one": field(6, many(b"\x08\x05")),
    "references one by one": field(10, many(b"\x08\x05")),
    "packed references": field(10, field(1, many(b"\x05"))),
    "messages": field(4, many(b"\x0a\x00")),
    "chats": many(b"\x22\x00"),
    "a message of many roles": field(4, field(1, many(b"\x0a\x00"))),
    "messages of many roles": field(4, many(field(1, b"\x0a\x00" * 2000))),
    "unknown fields": many(b"\xa2\x06\x00"),
    "unknown numbers": many(b"\x78\x00"),
}
"""More of anything than a request has."""


def requests(max_model_len: int, longest_token: int) -> dict[str, bytes]:
    """Requests that are hostile to a target of that context: refused, or served at some cost.

    Args:
        max_model_len: Of the target.
        longest_token: Id of the token with the most text.
    """
    found: dict[str, bytes] = {}

    def add(name: str, **fields: object) -> generation_pb2.GenerateRequest:
        message = generation_pb2.GenerateRequest(**fields)
        build(name, message)
        return message

    def build(name: str, message: generation_pb2.GenerateRequest) -> None:
        found[name] = message.SerializeToString()

    add("a long text", text="abcdefghij klmnopq 1234 " * 170_000)
    add("a text of one character", text="a" * 4_000_000)
    add("a text of control tokens", text="<|im_end|>" * 400_000)
    add("a text as long as it may be", text="the fox " * (max_model_len // 2))
    add("a long id", token_ids={"ids": [5]}, request_id="x" * 4_000_000)
    chat = generation_pb2.GenerateRequest()
    for _ in range(4096):
        chat.chat.messages.add(role="user", content="<|im_end|>" * 90)
    build("a long chat", chat)
    chat = generation_pb2.GenerateRequest()
    for _ in range(4096):
        chat.chat.messages.add(role="user", content="<")
    build("a chat of many messages", chat)
    role = generation_pb2.GenerateRequest()
    role.chat.messages.add(role="x" * 4_000_000)
    build("a long role", role)

    for stops in ((), tuple("a" * 250 + chr(0xE9 + i) for i in range(16))):
        resumed = generation_pb2.GenerateRequest(token_ids={"ids": [5]})
        resumed.sampling.n = 16
        resumed.sampling.seed = 1
        resumed.sampling.max_tokens = max_model_len - 2
        resumed.sampling.ignore_eos = True
        resumed.sampling.stop.extend(stops)
        for index in range(16):
            resumed.resumed.add(index=index, token_ids=[longest_token] * (max_model_len - 3))
        build(f"resumed outputs, {len(stops)} stop strings", resumed)
    words = generation_pb2.GenerateRequest(token_ids={"ids": [5]})
    words.sampling.max_tokens = 1
    words.sampling.bad_words.extend(f"{i} {'x y ' * 60}" for i in range(64))
    build("bad words", words)
    samples = generation_pb2.GenerateRequest(token_ids={"ids": [1] * (max_model_len - 2)})
    samples.sampling.n = 16
    samples.sampling.max_tokens = 1
    build("many samples of a long prompt", samples)
    logprobs = generation_pb2.GenerateRequest(token_ids={"ids": [5]})
    logprobs.sampling.n = 16
    logprobs.sampling.logprobs = 20
    logprobs.sampling.max_tokens = 40
    build("many log-probabilities", logprobs)
    return found
