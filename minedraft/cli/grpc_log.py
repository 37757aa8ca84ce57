"""Keeps gRPC's core from writing to stderr. Knows no command."""

from __future__ import annotations

import os


def quiet() -> None:
    """Silence it in this process and its children. Call this before grpc is imported.

    It writes a line per refused message and failed handshake, so a stranger could write as many as
    it likes, unformatted and past our log's limits. What we make of such errors is in our own log.
    Who has set the variable is left alone.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
