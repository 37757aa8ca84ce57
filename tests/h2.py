"""HTTP/2 by hand: what no gRPC client would send. Frames only; reads nothing."""

from __future__ import annotations

import asyncio
import struct


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
        ">I", stream
    ) + payload  # fmt: skip


def _header(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)


def call(method: str, stream: int = 1, *, encoding: bytes = b"") -> bytes:
    """The headers of a gRPC call, whose message may follow."""
    pairs = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", method.encode()),
        (b":authority", b"x"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *([(b"grpc-encoding", encoding)] if encoding else []),
    ]
    return frame(1, 4, stream, b"".join(_header(*pair) for pair in pairs))


def message(payload: bytes, stream: int = 1, *, compressed: bool = False) -> bytes:
    """One message and the end of the stream, in frames of the default size."""
    data = bytes([compressed]) + struct.pack(">I", len(payload)) + payload
    parts = [data[i : i + 16384] for i in range(0, len(data), 16384)]
    return b"".join(frame(0, i == len(parts) - 1, stream, part) for i, part in enumerate(parts))


async def connect(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection and send bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    return reader, writer
