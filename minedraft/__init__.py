"""MineDraft: batch parallel speculative decoding. Importing this loads neither gRPC nor torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.grpc_fork import start_no_threads

if TYPE_CHECKING:
    from minedraft.client import Client, SyncClient

__all__ = ["Client", "SyncClient", "__version__"]
__version__ = "0.1.0"

start_no_threads()


def __getattr__(name: str) -> object:
    """Load the client when it is first asked for (PEP 562)."""
    if name in {"Client", "SyncClient"}:
        from minedraft import client

        return getattr(client, name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
