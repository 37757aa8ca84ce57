"""`minedraft mode`: changes how requests rotate in a running service."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from minedraft.cli.options import DEFAULT_ADDRESS, Address, HttpProxy, connected, out
from minedraft.plans import MAX_BATCHES, MAX_DRAFT_TOKENS, MAX_ROWS
from minedraft.security.config import SecurityConfig


def mode(
    batches: Annotated[
        int | None, typer.Option(min=1, max=MAX_BATCHES, help="Batches that rotate.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, max=MAX_ROWS, help="Most requests per batch.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=0, max=MAX_DRAFT_TOKENS, help="Draft tokens per step.")
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="auto: the coordinator chooses within these numbers. fixed: it does not."
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Decides how much each step drafts and verifies.")
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    *,
    http_proxy: HttpProxy = False,
    security: SecurityConfig,
) -> None:
    """Change the mode while requests run; what no option names stays."""
    given = {
        "num_batches": batches,
        "max_batch_size": batch,
        "num_draft_tokens": k,
        "shape": shape,
        "policy": policy,
    }
    with connected(address, security, http_proxy=http_proxy) as client:
        changes = {name: value for name, value in given.items() if value is not None}
        wanted = replace(client.server_info().mode, **changes)  # type: ignore[arg-type]
        client.set_mode(
            num_batches=wanted.num_batches,
            max_batch_size=wanted.max_batch_size,
            num_draft_tokens=wanted.num_draft_tokens,
            shape=wanted.shape,
            policy=wanted.policy,
        )
    out.print(
        f"mode {wanted.name}: {wanted.num_batches} x {wanted.max_batch_size} requests, "
        f"k = {wanted.num_draft_tokens}, shape {wanted.shape}, "
        f"policy {wanted.policy}"
    )
