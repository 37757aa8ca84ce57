"""Channel and server options of every connection: limits and keepalive agree on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.security.channel import open_aio_channel

if TYPE_CHECKING:
    import grpc

    from minedraft.security.credentials import Credentials

MAX_CLIENT_MESSAGE_BYTES = 4 * 2**20
"""Largest message a client may send or gets: a prompt of 32k characters has room to spare."""
MAX_WORKER_MESSAGE_BYTES = 64 * 2**20
"""Largest message between our own services: opens of a whole batch of long prompts."""

_KEEPALIVE_MS = 10_000
_MAX_STREAMS = 4096
"""Most calls of one connection at a time; further ones wait at the client, which is not told. So it
is more than a coordinator holds by default: a full queue then refuses by name."""

Options = list[tuple[str, int]]


def channel_options(max_message_bytes: int) -> Options:
    """Options of a client channel."""
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # A restarted peer must be found at once, not after gRPC's default back-off of up to 120 s.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]


def server_options(max_message_bytes: int) -> Options:
    """Options of a server. Pings as `channel_options` sends them, else GOAWAY too_many_pings."""
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),  # a port in use is an error, not a shared port
    ]


def open_channel(
    address: str,
    *,
    max_message_bytes: int = MAX_CLIENT_MESSAGE_BYTES,
    credentials: Credentials | None = None,
    server_name: str = "",
    own_connection: bool = False,
) -> grpc.aio.Channel:
    """Open a channel to `host:port`. Connects lazily; close it.

    Args:
        address: Whom to dial.
        max_message_bytes: Largest message either way.
        credentials: Certificates and token; None: plaintext, nobody.
        server_name: Name that the peer's certificate must have; empty: the address's host.
        own_connection: Share no connection with other channels of this process, as gRPC does when
            address and options are the same, nor its limit of calls.
    """
    options: list[tuple[str, int | str]] = [*channel_options(max_message_bytes)]
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    if own_connection:
        options.append(("grpc.use_local_subchannel_pool", 1))
    return open_aio_channel(address, options, credentials)
