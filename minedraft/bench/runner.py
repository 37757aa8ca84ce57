"""Runs the measurements on a running service, one after the other. Prints nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from minedraft.bench import machine
from minedraft.bench.load import Job, run_load
from minedraft.bench.modes import ALL_CORES, Cores, Measurement, measurements
from minedraft.bench.result import BenchResult, ModeResult
from minedraft.bench.sizing import Speed, speed_of
from minedraft.bench.steady import measure
from minedraft.errors import ConfigError, PreconditionError
from minedraft.types import DebugOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.admin import ServerInfo, Status
    from minedraft.bench.load import Record
    from minedraft.client import Client
    from minedraft.types import Mode

_IDLE_TIMEOUT_S = 30.0
_POLL_S = 0.05
_MAX_SPANS = 20_000


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure."""

    prompts: tuple[str, ...]
    modes: tuple[str, ...] = ("ar", "sd", "psd")
    batch: int = 8
    """Requests per batch (m); psd has two batches."""
    num_draft_tokens: int = 4
    """Draft tokens per step (k)."""
    max_tokens: int = 64
    """Output tokens per request; EOS does not end one."""
    synthetic_acceptance: float | None = None
    """Let a `synthetic` drafter propose this share of tokens right; None: its own drafts."""
    use_chat: bool | None = None
    """Send prompts as chat messages; None: if the target has a template."""
    warmup_tokens: int = 16
    """Output tokens of the requests that fill the slots before each measurement; 0: none, because
    a calibration has just done it."""
    reference: tuple[tuple[int, ...], ...] = ()
    """Outputs of an earlier AR run over the same prompts; empty: made here if needed."""
    cores: Cores | None = None
    """Where the workers compute; None: nobody knows."""


class Progress(Protocol):
    """Shows the progress of a bench."""

    def begin(self, name: str, num_tokens: int) -> None:
        """A phase begins; it has `num_tokens` output tokens."""

    def advance(self, num_tokens: int) -> None:
        """`num_tokens` output tokens came."""


class Silence:
    """Shows nothing."""

    def begin(self, name: str, num_tokens: int) -> None:
        """Do nothing."""

    def advance(self, num_tokens: int) -> None:
        """Do nothing."""


async def run_bench(
    client: Client,
    options: BenchOptions,
    *,
    all_cores: Client | None = None,
    progress: Progress | None = None,
) -> BenchResult:
    """Measure on an idle service, and restore its mode at the end.

    Args:
        client: Of that service.
        options: What to measure.
        all_cores: Of a service that has the target alone, on the cores of both workers of the
            other one; only mode `ar_all` uses it.
        progress: Watches.

    Raises:
        ConfigError: options that make no sense, or synthetic acceptance without a `synthetic`
            drafter.
        MineDraftError: a request failed.
    """
    watcher = progress or Silence()
    wanted = measurements(
        options.modes, batch=options.batch, num_draft_tokens=options.num_draft_tokens
    )
    if not options.prompts:
        raise ConfigError("prompts: none")
    places = _Places(client, all_cores, wanted)
    target = await client.model_info()
    status = await client.status()
    if options.synthetic_acceptance is not None:
        _check_synthetic(options.synthetic_acceptance, status, await client.server_info())
    use_chat = target.has_chat_template if options.use_chat is None else options.use_chat
    jobs = [Job(prompt, options.max_tokens, use_chat=use_chat) for prompt in options.prompts]
    about = {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": await asyncio.to_thread(machine.describe),
        "models": _models(status),
        "options": _describe(options, use_chat=use_chat),
    }
    results: dict[str, ModeResult] = {}
    reference = options.reference
    try:
        for each in wanted:
            if each.mode.num_draft_tokens and options.synthetic_acceptance is not None:
                if not reference:
                    reference = await _reference(client, jobs, options, watcher)
                jobs = _with_reference(jobs, reference, options.synthetic_acceptance)
            place = places.of(each)
            result = await _measure(place, each, jobs, watcher, options.warmup_tokens)
            cores = options.cores.of(each) if options.cores is not None else None
            results[each.name] = replace(result, cores=cores)
            reference = reference or result.outputs
    finally:
        await _switch(client, status.mode)
    return BenchResult(results, options.synthetic_acceptance, reference, about)


async def calibrate(
    client: Client,
    options: BenchOptions,
    *,
    num_tokens: int,
    all_cores: Client | None = None,
    progress: Progress | None = None,
) -> dict[str, Speed]:
    """Run every measurement for a few tokens in all slots. This also warms the service up.

    Args:
        client: Of a service that should have nothing else to do; its mode is restored.
        options: What will be measured.
        num_tokens: Output tokens of each request; >= 2.
        all_cores: As for `run_bench`.
        progress: Watches.

    Returns:
        The speed of each measurement, by its name.
    """
    watcher = progress or Silence()
    status = await client.status()
    target = await client.model_info()
    use_chat = target.has_chat_template if options.use_chat is None else options.use_chat
    jobs = [Job(prompt, num_tokens, use_chat=use_chat) for prompt in options.prompts]
    wanted = measurements(
        options.modes, batch=options.batch, num_draft_tokens=options.num_draft_tokens
    )
    places = _Places(client, all_cores, wanted)
    speeds = {}
    try:
        for each in wanted:
            place = places.of(each)
            await _switch(place, each.mode)
            start = time.perf_counter()
            records = await _fill(place, each, jobs, watcher, "calibration")
            speeds[each.name] = speed_of(records, time.perf_counter() - start)
    finally:
        await _switch(client, status.mode)
    return speeds


class _Places:
    """Which service measures what.

    Raises:
        ConfigError: one that is wanted is missing.
    """

    def __init__(
        self, client: Client, all_cores: Client | None, wanted: Sequence[Measurement]
    ) -> None:
        if all_cores is None and any(each.on_all_cores for each in wanted):
            raise ConfigError(
                f"modes={ALL_CORES!r}: needs services of its own, on the cores of both workers; "
                "give --pair or --target"
            )
        self._client = client
        self._all_cores = all_cores

    def of(self, measurement: Measurement) -> Client:
        """Find the service of a measurement."""
        if measurement.on_all_cores and self._all_cores is not None:
            return self._all_cores
        return self._client


async def _fill(
    client: Client, each: Measurement, jobs: Sequence[Job], watcher: Progress, what: str
) -> list[Record]:
    """Run one job per slot."""
    few = jobs[: each.num_resident]
    watcher.begin(f"{each.name} {what}", sum(job.max_tokens for job in few))
    return await run_load(client, few, num_resident=each.num_resident, on_tokens=watcher.advance)


async def _measure(
    client: Client,
    each: Measurement,
    jobs: Sequence[Job],
    watcher: Progress,
    warmup_tokens: int,
) -> ModeResult:
    await _switch(client, each.mode)
    if warmup_tokens:
        short = [replace(job, max_tokens=min(job.max_tokens, warmup_tokens)) for job in jobs]
        await _fill(client, each, short, watcher, "warm-up")
    stale = (await client.status()).counters.num_stale_drafts
    newest = await client.timeline(max_spans=2)
    since = max((span.start_ns for span in newest), default=0)
    watcher.begin(each.name, sum(job.max_tokens for job in jobs))
    start = time.perf_counter()
    records = await run_load(
        client, jobs, num_resident=each.num_resident, on_tokens=watcher.advance
    )
    wall_s = time.perf_counter() - start
    spans = await client.timeline(max_spans=_MAX_SPANS, since_unix_ns=since)
    steady = measure(spans, batch=each.mode.max_batch_size)
    stale = (await client.status()).counters.num_stale_drafts - stale
    return ModeResult(each, tuple(records), steady, spans, wall_s, stale)


async def _reference(
    client: Client, jobs: Sequence[Job], options: BenchOptions, watcher: Progress
) -> tuple[tuple[int, ...], ...]:
    """Let the target write the continuation from which the synthetic drafter proposes."""
    (_, wide) = measurements(("ar",), batch=options.batch, num_draft_tokens=1)
    await _switch(client, wide.mode)
    watcher.begin("reference", sum(job.max_tokens for job in jobs))
    records = await run_load(
        client, jobs, num_resident=wide.num_resident, on_tokens=watcher.advance
    )
    return tuple(record.token_ids for record in records)


def _with_reference(
    jobs: Sequence[Job], reference: Sequence[tuple[int, ...]], acceptance: float
) -> list[Job]:
    if len(reference) != len(jobs):
        raise ConfigError(f"reference: {len(reference)} outputs for {len(jobs)} prompts")
    return [
        replace(
            job,
            debug=DebugOptions(reference_token_ids=token_ids, synthetic_acceptance=acceptance),
        )
        for job, token_ids in zip(jobs, reference, strict=True)
    ]


async def _switch(client: Client, mode: Mode) -> None:
    """Set the mode as soon as the service is idle; it may still clean up the last request.

    Raises:
        PreconditionError: somebody else uses the service.
    """
    deadline = time.monotonic() + _IDLE_TIMEOUT_S
    # The coordinator notifies no client, so this polls.
    while not (status := await client.status()).is_idle:
        if time.monotonic() > deadline:
            raise PreconditionError(
                f"{status.num_running} requests run, {status.num_waiting} wait: a bench needs the "
                "service to itself"
            )
        await asyncio.sleep(_POLL_S)
    await client.set_mode(
        num_batches=mode.num_batches,
        max_batch_size=mode.max_batch_size,
        num_draft_tokens=mode.num_draft_tokens,
        shape=mode.shape,
    )


def _check_synthetic(acceptance: float, status: Status, server: ServerInfo) -> None:
    if not 0 <= acceptance <= 1:
        raise ConfigError(f"synthetic_acceptance={acceptance}: want 0..1")
    kinds = [worker.model.drafter_kind for worker in status.workers if worker.role == "drafter"]
    if "synthetic" not in kinds:
        found = kinds[0] if kinds else "none"
        raise ConfigError(
            f"synthetic_acceptance={acceptance}: needs a drafter of kind synthetic, this one is "
            f"{found!r}; start it with --kind synthetic"
        )
    if not server.takes_debug_requests:
        raise ConfigError(
            f"synthetic_acceptance={acceptance}: needs a coordinator that takes debug options; "
            "start it with --debug-requests"
        )


def _models(status: Status) -> dict[str, Any]:
    return {
        worker.role: {
            "name": worker.model.name,
            "dtype": worker.model.dtype,
            "vocab_size": worker.model.vocab_size,
            "kind": worker.model.drafter_kind,
            "link": worker.link_description,
        }
        for worker in status.workers
    }


def _describe(options: BenchOptions, *, use_chat: bool) -> dict[str, Any]:
    return {
        "num_prompts": len(options.prompts),
        "modes": list(options.modes),
        "batch": options.batch,
        "k": options.num_draft_tokens,
        "max_tokens": options.max_tokens,
        "cores": None if options.cores is None else asdict(options.cores),
        "chat": use_chat,
        "temperature": 0.0,
    }
