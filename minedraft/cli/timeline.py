"""`minedraft timeline`: draws the newest steps of both devices, as picture or trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from minedraft.admin import Span
from minedraft.cli.options import DEFAULT_ADDRESS, Address, HttpProxy, connected, err
from minedraft.errors import ConfigError
from minedraft.security.config import SecurityConfig
from minedraft.timeline.svg import render
from minedraft.timeline.trace import to_chrome_trace
from minedraft.timeline.window import last_steps
from minedraft.types import Mode


def timeline(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a picture (SVG) here.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write a trace for ui.perfetto.dev or chrome://tracing here."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Number of verify steps in the picture.")] = 16,
    address: Address = DEFAULT_ADDRESS,
    *,
    http_proxy: HttpProxy = False,
    security: SecurityConfig,
) -> None:
    """Draw the latest steps of drafter and verifier."""
    if out is None and trace is None:
        raise ConfigError("out='', trace='': give --out picture.svg, --trace trace.json, or both")
    with connected(address, security, http_proxy=http_proxy) as client:
        spans = client.timeline()
        mode = client.server_info().mode
    if not spans:
        raise ConfigError(f"address={address!r}: the coordinator has run no step yet")
    if out is not None:
        write_picture(out, last_steps(spans, steps), mode)
        err.print(f"picture: {out}", soft_wrap=True)
    if trace is not None:
        write_trace(trace, spans)
        err.print(f"trace: {trace} (open it in ui.perfetto.dev)", soft_wrap=True)


def write_picture(path: Path, spans: Sequence[Span], mode: Mode, *, subtitle: str = "") -> None:
    """Write the picture of `spans`."""
    title = {
        "ar": "MineDraft: plain decoding, no drafts",
        "sd": "MineDraft: one batch, drafted and then verified",
        "psd": "MineDraft: two batches rotating",
    }[mode.name]
    facts = (
        f"{mode.num_batches} x {mode.max_batch_size} requests, k = {mode.num_draft_tokens}"
        f"{'; ' if subtitle else ''}{subtitle}"
    )
    _write(path, render(spans, title=title, subtitle=facts))


def write_trace(path: Path, spans: Sequence[Span]) -> None:
    """Write the trace of `spans`, for ui.perfetto.dev."""
    _write(path, json.dumps(to_chrome_trace(spans)))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"cannot write {path}: {failure.strerror}") from None
