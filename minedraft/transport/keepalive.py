"""When a connection counts as dead: both ends ping, and both wait equally long. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Options: TypeAlias = list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Keepalive:
    """How either end detects a network that drops everything."""

    silence_ms: int = 4_000
    """Silence of the peer before a ping."""
    answer_ms: int = 10_000
    """Longest wait for the answer to a ping, whatever it was sent for. The larger part of the two:
    a ping may be on its way when a peer, or this process, is stopped for a moment, which is no dead
    network."""

    def options(self) -> Options:
        """Options of both ends.

        gRPC also pings to measure the bandwidth, while bytes flow, and sends no keepalive beside
        such a ping: without a time-out of its own, of 60 s by default, it hides a dead network.
        """
        return [
            ("grpc.keepalive_time_ms", self.silence_ms),
            ("grpc.keepalive_timeout_ms", self.answer_ms),
            ("grpc.http2.ping_timeout_ms", self.answer_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]

    def server_options(self) -> Options:
        """Further options of a server; without them it ends connections for too many pings."""
        return [
            ("grpc.http2.min_ping_interval_without_data_ms", self.silence_ms // 2),
            ("grpc.http2.max_ping_strikes", 0),
        ]


KEEPALIVE = Keepalive()
