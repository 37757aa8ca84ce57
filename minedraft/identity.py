"""The identity of this process, drawn once at its start."""

from __future__ import annotations

import os
import secrets
import time

from minedraft import __version__
from minedraft.plans import PROTOCOL_VERSION, WorkerIdentity


def draw_identity() -> WorkerIdentity:
    """Draw this process's identity; by it a peer recognizes another process at the address."""
    return WorkerIdentity(
        instance_id=secrets.token_hex(8),
        protocol_version=PROTOCOL_VERSION,
        started_unix_ns=time.time_ns(),
        pid=os.getpid(),
        version=__version__,
    )
