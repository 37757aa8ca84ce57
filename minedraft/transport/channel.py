"""Options of every channel and server, so that limits and keepalive agree on both sides.

Nothing is compressed, and nothing of our own goes through a proxy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.security.channel import open_aio_channel
from minedraft.transport.keepalive import KEEPALIVE
from minedraft.transport.limits import CLIENT_IDLE_MS, limits_for, raise_open_files

if TYPE_CHECKING:
    import grpc

    from minedraft.security.credentials import Credentials
    from minedraft.transport.keepalive import Options
    from minedraft.transport.limits import ServerLimits

MAX_CLIENT_MESSAGE_BYTES = 4 * 2**20
"""Largest message between clients and coordinator; a prompt of 32k characters fits easily."""
MAX_WORKER_MESSAGE_BYTES = 64 * 2**20
"""Largest message between services: a plan that opens a whole batch of long prompts."""

_ONLY_IDENTITY = 1
"""Bits of gRPC's compression algorithms; the lowest is none at all. A compressed message is refused
by its headers: nothing bounds what it inflates to before that memory is taken."""


def _common_options(max_message_bytes: int) -> Options:
    """Options of both ends of every connection, of the health port too."""
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.compression_enabled_algorithms_bitset", _ONLY_IDENTITY),
        *KEEPALIVE.options(),
    ]


def channel_options(max_message_bytes: int, *, http_proxy: bool = False) -> Options:
    """Return the options of a client channel.

    Args:
        max_message_bytes: Largest message either way.
        http_proxy: Go through the proxy that the environment names (`http_proxy`, `no_proxy`).
    """
    return [
        *_common_options(max_message_bytes),
        ("grpc.enable_http_proxy", int(http_proxy)),
        ("grpc.client_idle_timeout_ms", CLIENT_IDLE_MS),
        # A restarted peer must be found at once, not after gRPC's default back-off of up to 120 s.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]


def server_options(max_message_bytes: int, limits: ServerLimits | None = None) -> Options:
    """Return the options of a server. It allows the pings that `channel_options` sends.

    Args:
        max_message_bytes: Largest message either way.
        limits: Of connections and calls; None: what this process's open files allow.
    """
    if limits is None:
        limits = limits_for(raise_open_files())
    return [
        *_common_options(max_message_bytes),
        *KEEPALIVE.server_options(),
        *limits.options(),
        ("grpc.so_reuseport", 0),  # a port in use is an error, not a shared port
    ]


def open_channel(
    address: str,
    *,
    max_message_bytes: int = MAX_CLIENT_MESSAGE_BYTES,
    credentials: Credentials | None = None,
    server_name: str = "",
    own_connection: bool = False,
    http_proxy: bool = False,
) -> grpc.aio.Channel:
    """Open a channel to `host:port`. Connects lazily; close it.

    Args:
        address: Whom to dial.
        max_message_bytes: Largest message either way.
        credentials: Certificates and token; None: plaintext without identity.
        server_name: Name that the peer's certificate must have; empty: the address's host.
        own_connection: Share no connection with other channels of this process, as gRPC does when
            address and options are the same, nor its limit of calls.
        http_proxy: See `channel_options`; services never use one.
    """
    options: list[tuple[str, int | str]] = [
        *channel_options(max_message_bytes, http_proxy=http_proxy)
    ]
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    if own_connection:
        options.append(("grpc.use_local_subchannel_pool", 1))
    return open_aio_channel(address, options, credentials)
