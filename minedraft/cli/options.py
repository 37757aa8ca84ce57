"""Options that several commands share, and the consoles they write to."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

out = Console(highlight=False)
"""Results: stdout."""
err = Console(stderr=True, highlight=False)
"""Everything about the work itself: stderr."""

DEFAULT_ADDRESS = "127.0.0.1:50050"

Address = Annotated[
    str,
    typer.Option(
        "--address", "-a", envvar="MINEDRAFT_ADDRESS", help="Coordinator to talk to, host:port."
    ),
]
ConnectTimeout = Annotated[
    float, typer.Option(help="Longest wait for the coordinator to answer, seconds.")
]
CONNECT_TIMEOUT_S = 5.0
