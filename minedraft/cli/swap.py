"""`minedraft drafter swap`: replaces the drafter of a running service."""

from __future__ import annotations

from typing import Annotated

import typer

from minedraft.cli.options import DEFAULT_ADDRESS, Address, HttpProxy, connected, err, out
from minedraft.client.client import SWAP_TIMEOUT_S
from minedraft.errors import ConfigError
from minedraft.plain_text import plain
from minedraft.security.address import check_dial
from minedraft.security.config import SecurityConfig


def swap(
    model: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Directory that the running drafter loads beside its present model."
        ),
    ] = "",
    to: Annotated[
        str, typer.Option(help="Or the address of another running drafter, which takes over.")
    ] = "",
    replace: Annotated[
        str, typer.Option(help="The drafter to replace. Default: the first one.")
    ] = "",
    address: Address = DEFAULT_ADDRESS,
    timeout: Annotated[
        float, typer.Option(min=1.0, help="Longest time for the whole swap.")
    ] = SWAP_TIMEOUT_S,
    *,
    http_proxy: HttpProxy = False,
    security: SecurityConfig,
) -> None:
    """Swap the drafter under load: the old one drafts until the new one has caught up."""
    if bool(model) == bool(to):
        raise ConfigError(f"want exactly one of --model and --to, got {model!r} and {to!r}")
    for setting, drafter in (("to", to), ("replace", replace)):
        if drafter:
            check_dial(setting, drafter)
    with (
        connected(address, security, http_proxy=http_proxy) as client,
        err.status("loading and warming up; the old drafter keeps drafting"),
    ):
        result = client.swap_drafter(model=model, address=to, replace=replace, timeout_s=timeout)
    out.print(
        f"drafting with {plain(result.model.name)} over link epoch {result.epoch}: "
        f"{result.duration_ns / 1e9:.2f} s in all, {result.warm_up_ns / 1e9:.2f} s of it warm-up",
        soft_wrap=True,
    )
