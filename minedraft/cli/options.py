"""Options that several commands share, and the consoles they write to."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from minedraft.cli import config_options
from minedraft.cli.console import PlainConsole
from minedraft.client import SyncClient
from minedraft.client.resume import RetryPolicy
from minedraft.security.config import SecurityConfig
from minedraft.security.exposure import exposed

out = PlainConsole()
"""Results: stdout."""
err = PlainConsole(stderr=True)
"""Progress, warnings and errors: stderr."""

DEFAULT_ADDRESS = "127.0.0.1:50050"

Address = Annotated[
    str,
    typer.Option("--address", "-a", envvar="MINEDRAFT_ADDRESS", help="Address of the coordinator."),
]
HttpProxy = Annotated[
    bool,
    typer.Option(
        "--http-proxy",
        envvar="MINEDRAFT_HTTP_PROXY",
        help="Use the proxy that http_proxy and no_proxy name.",
    ),
]
DTYPE_HELP = "auto, float32 or bfloat16; auto: bfloat16 if this CPU is fast in it."
KERNELS_HELP = "auto, c or torch; auto: c where it can run."
CONNECT_TIMEOUT_S = 5.0


def connected(
    address: str, security: SecurityConfig, *, http_proxy: bool, retry: RetryPolicy | None = None
) -> SyncClient:
    """Connect to the coordinator, as every command that asks it does.

    Args:
        address: `host:port`.
        security: How this side proves who it is.
        http_proxy: Whether to go through the proxy of the environment.
        retry: How generations continue after a loss of the coordinator; None: as the client does.
    """
    return SyncClient(
        address,
        timeout_s=CONNECT_TIMEOUT_S,
        security=security,
        http_proxy=http_proxy,
        retry=retry or RetryPolicy(),
    )


def secured(command: Callable[..., None], *, is_server: bool = False) -> Callable[..., None]:
    """Replace a command's parameter `security` by the options of `SecurityConfig`.

    Args:
        command: The command.
        is_server: The command listens, so it takes `--insecure`.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters.values()
    files = [
        parameter
        for parameter in config_options.parameters(SecurityConfig)
        if is_server or parameter.name != "insecure"
    ]

    @wraps(command)
    def run(**values: Any) -> None:  # noqa: ANN401  # whatever the options hold
        given = {parameter.name: values.pop(parameter.name) for parameter in files}
        security = config_options.build(SecurityConfig, given)
        for found in exposed(security):
            err.print(f"warning: {found}", style="yellow", soft_wrap=True)
        command(**values, security=security)

    every = [
        *(p.replace(annotation=hints[p.name]) for p in own if p.name != "security"),
        *files,
    ]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    return run
