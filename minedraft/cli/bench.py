"""`minedraft bench`: measures AR, SD and PSD on running services, or on services of its own.

With services of its own it also measures plain decoding on all their cores.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from minedraft.bench.modes import ALL_CORES, MODES, PLAIN_MODES, Cores, measurements
from minedraft.bench.prompts import load_prompts
from minedraft.bench.result import BenchResult
from minedraft.bench.runner import BenchOptions, run_bench
from minedraft.bench.table import lines, table
from minedraft.cli.cluster import ClusterSpec
from minedraft.cli.options import (
    CONNECT_TIMEOUT_S,
    DEFAULT_ADDRESS,
    DTYPE_HELP,
    KERNELS_HELP,
    Address,
    HttpProxy,
    err,
    out,
)
from minedraft.cli.serve import check_arithmetic, find_models, started
from minedraft.client import Client
from minedraft.errors import ConfigError
from minedraft.plans import MAX_ROWS
from minedraft.security.config import SecurityConfig
from minedraft.types import Mode


def bench(
    *,
    prompts: Annotated[Path, typer.Option(help="JSON Lines with `turns`, as in Spec-Bench.")],
    modes: Annotated[
        str,
        typer.Option(
            help="Any of ar, ar_all, sd, psd, with commas. ar_all: the target on all cores, with "
            "services of its own. Default: all that can be measured."
        ),
    ] = "",
    batch: Annotated[
        int, typer.Option(min=1, max=MAX_ROWS, help="Requests per batch (m). psd has two batches.")
    ] = 8,
    k: Annotated[int, typer.Option("--k", min=1, max=32, help="Draft tokens per step.")] = 4,
    max_tokens: Annotated[int, typer.Option(min=1, help="Output tokens per request.")] = 64,
    synthetic_acceptance: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share of tokens that a synthetic drafter gets right."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures here.")
    ] = None,
    num_prompts: Annotated[
        int | None, typer.Option(min=1, help="Requests per mode. Default: 4 x batch.")
    ] = None,
    max_prompt_chars: Annotated[
        int | None, typer.Option(min=1, help="Skip longer prompts.")
    ] = None,
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--raw",
            help="Prompts as chat messages, or raw; default: chat if the target has a template.",
        ),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    target: Annotated[
        str, typer.Option(help="Start services with this target: directory or hub id.")
    ] = "",
    draft: Annotated[str, typer.Option(help="Draft model of those services: likewise.")] = "",
    pair: Annotated[
        str, typer.Option(help="Demo models instead of the two: smollm2 or coder.")
    ] = "",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "auto",
    kernels: Annotated[str, typer.Option(help=KERNELS_HELP)] = "auto",
    num_blocks: Annotated[int, typer.Option(min=1, help="KV blocks per worker.")] = 1024,
    http_proxy: HttpProxy = False,
    security: SecurityConfig,
) -> None:
    """Measure AR, SD and PSD with the same prompts, greedily, and compare their outputs."""
    has_own = bool(target or pair)
    modes = modes or ",".join(_measurable(has_own=has_own, has_drafter=bool(draft or pair)))
    options = BenchOptions(
        prompts=load_prompts(prompts, limit=num_prompts or 4 * batch, max_chars=max_prompt_chars),
        modes=tuple(mode.strip() for mode in modes.split(",") if mode.strip()),
        batch=batch,
        num_draft_tokens=k,
        max_tokens=max_tokens,
        synthetic_acceptance=synthetic_acceptance,
        use_chat=chat,
    )
    measurements(options.modes, batch=batch, num_draft_tokens=k)  # before anything is started
    spec: ClusterSpec | None = None
    if has_own:
        check_arithmetic(dtype, kernels)
        target, draft = find_models(target, draft, pair)
        if not draft and not set(options.modes) <= PLAIN_MODES:
            raise ConfigError(f"draft='': modes {modes} need a drafter")
        spec = ClusterSpec(
            target=target,
            draft=draft,
            mode=Mode(2, batch, k) if draft else Mode(1, batch, 0),
            listen="127.0.0.1:0",
            dtype=dtype,
            kernels=kernels,
            drafter_kind="model" if synthetic_acceptance is None else "synthetic",
            num_blocks=num_blocks,
        )
        options = replace(options, cores=Cores(*spec.worker_cpus()))
    result = asyncio.run(_bench(options, address, spec, security, http_proxy=http_proxy))
    show(result, out)
    if json_file is not None:
        write_json(json_file, result)
        err.print(f"figures: {json_file}", soft_wrap=True)


def _measurable(*, has_own: bool, has_drafter: bool) -> Iterator[str]:
    """Choose the modes that services of our own, or running ones, can have."""
    for mode in MODES:
        is_possible = has_drafter or mode in PLAIN_MODES if has_own else mode != ALL_CORES
        if is_possible:
            yield mode


async def _bench(
    options: BenchOptions,
    address: str,
    spec: ClusterSpec | None,
    security: SecurityConfig,
    *,
    http_proxy: bool,
) -> BenchResult:
    all_cores = None
    async with AsyncExitStack() as stack:
        if spec is not None:
            cluster = await stack.enter_async_context(started(spec))
            address, security, http_proxy = cluster.address, spec.security, False
            if ALL_CORES in options.modes:
                all_cores = await stack.enter_async_context(alone(spec))
        client = await Client.connect(
            address, timeout_s=CONNECT_TIMEOUT_S, security=security, http_proxy=http_proxy
        )
        await stack.enter_async_context(client)
        with bars(err) as progress:
            return await run_bench(client, options, all_cores=all_cores, progress=progress)


@asynccontextmanager
async def alone(spec: ClusterSpec) -> AsyncIterator[Client]:
    """Serve the target alone, on the cores of both workers of `spec`, for mode `ar_all`."""
    async with (
        started(spec.on_all_cores()) as cluster,
        await Client.connect(cluster.address, security=spec.security) as client,
    ):
        yield client


def show(result: BenchResult, console: Console, *, title: str = "") -> None:
    """Print the table and the lines under it."""
    if result.synthetic_acceptance is not None:
        note = f"SYNTHETIC acceptance of {result.synthetic_acceptance:g}"
        title = f"{title} ({note})" if title else note
    console.print(table(result, title=title))
    for line in lines(result):
        console.print(line, soft_wrap=True)


def write_json(path: Path, result: BenchResult) -> None:
    """Write the figures."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result.to_json(), indent=1) + "\n", encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"json={str(path)!r}: {failure.strerror}") from None


class Bars:
    """One progress bar per phase of the bench; without a terminal, one line per phase."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def begin(self, name: str, num_tokens: int) -> None:
        """Start the next phase."""
        if self._progress.disable:
            self._progress.console.print(f"measuring: {name}, {num_tokens} tokens")
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=num_tokens)

    def advance(self, num_tokens: int) -> None:
        """Advance the bar."""
        if self._task is not None:
            self._progress.advance(self._task, num_tokens)


@contextmanager
def bars(console: Console) -> Iterator[Bars]:
    """Draw progress while the context is open."""
    columns = (
        TextColumn("measuring {task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tokens"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        yield Bars(progress)
