"""Keeps gRPC from starting threads in a fork of this process. Loads nothing."""

from __future__ import annotations

import os


def start_no_threads() -> None:
    """Turn gRPC's fork support off, unless the environment sets it. Call it before importing gRPC.

    With it gRPC starts threads in a fork, which abort it now and then; without, a fork has none,
    and a client there says that it does not work (`transport.home_process`).
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
