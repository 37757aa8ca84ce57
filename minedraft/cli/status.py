"""`minedraft status`: shows the state of the coordinator, once or repeatedly."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from minedraft.admin import CostStatus, PolicyStatus, Status, WorkerStatus
from minedraft.cli.console import cell
from minedraft.cli.options import DEFAULT_ADDRESS, Address, HttpProxy, connected, out
from minedraft.security.config import SecurityConfig


def status(
    address: Address = DEFAULT_ADDRESS,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Pause between two updates.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    http_proxy: HttpProxy = False,
    security: SecurityConfig,
) -> None:
    """Show batches, workers, KV blocks and totals."""
    with connected(address, security, http_proxy=http_proxy) as client:
        if as_json:
            out.document(asdict(client.status()))
            return
        if not watch:
            out.print(view(client.status(), address))
            return
        with suppress(KeyboardInterrupt), Live(console=out, auto_refresh=False) as live:
            while True:
                live.update(view(client.status(), address), refresh=True)
                time.sleep(interval)


def view(status: Status, address: str) -> Group:
    """Lay a status out for a terminal."""
    mode = status.mode
    uptime_s = time.time() - status.identity.started_unix_ns / 1e9
    head = (
        f"coordinator {address}: {'draining' if status.draining else 'serving'}, "
        f"up {uptime_s:.0f} s, {status.rss_bytes / 2**20:.0f} MiB\n"
        f"mode {mode.name}: {mode.num_batches} x {mode.max_batch_size} requests, "
        f"k = {mode.num_draft_tokens}; {status.num_running} running, "
        f"{status.num_waiting} waiting; KV blocks {status.num_blocks_used} of {status.num_blocks}, "
        f"{status.num_blocks_cached} more cached"
    )
    shape = Text("\n").join(cell(line) for line in (*_shape(status), *_policy(status.policy)))
    totals = Text("\n").join(cell(line) for line in _totals(status))
    return Group(Text(head), shape, _workers(status), _batches(status), totals)


def _workers(status: Status) -> Table:
    table = _table("worker", "address", "state", "model", "link", "holds")
    for worker in status.workers:
        model = worker.model
        facts = (
            model.dtype,
            model.quantisation,
            model.kernels,
            model.drafter_kind,
            model.device,
        )
        about = ", ".join(filter(None, facts))
        state = "connected" if worker.connected else "away"
        columns = (
            worker.role,
            worker.address,
            f"{state}: {worker.last_error}" if worker.last_error else state,
            f"{model.name} ({about})" if model.name else "-",
            worker.link_description or "-",
            _holds(worker),
        )
        table.add_row(*map(cell, columns))
    return table


def _holds(worker: WorkerStatus) -> str:
    usage = worker.usage
    if usage is None:
        return "-"
    mib = usage.rss_bytes / 2**20
    blocks = f"{usage.num_blocks_used} of {usage.num_blocks} blocks"
    ahead = ""
    if usage.num_ahead_tokens:
        num_wasted = usage.num_ahead_tokens - usage.num_ahead_used_tokens
        ahead = f"; {usage.num_ahead_tokens} tokens drawn ahead, {num_wasted} of them not used"
    return f"{blocks}, {usage.num_blocks_cached} more cached, {mib:.0f} MiB{ahead}"


def _shape(status: Status) -> list[str]:
    """Say how requests rotate, and why."""
    shape, counters = status.shape, status.counters
    if not shape.num_batches:
        return []
    lines = [f"shape {status.mode.shape}: {shape.name}; {counters.num_shape_switches} switches"]
    lines += [
        f"  {candidate.name}: "
        + (
            "unknown"
            if candidate.tokens_per_s is None
            else f"{candidate.tokens_per_s:.0f} tokens/s"
        )
        for candidate in status.candidates
    ]
    if counters.num_rotating_steps:
        share = counters.num_fallback_steps / counters.num_rotating_steps
        lines.append(
            f"  moves: {counters.num_moves}; of {counters.num_rotating_steps} steps that could "
            f"rotate, {counters.num_fallback_steps} took turns ({share:.1%})"
        )
    return lines


def _policy(policy: PolicyStatus) -> list[str]:
    """Say what the policy decides."""
    if not policy.name:
        return []
    parts = [f"policy {policy.name}: {policy.mean_draft_tokens:.1f} drafts per row"]
    if policy.mean_budget:
        parts.append(f"{policy.mean_budget:.1f} verified per step")
    if policy.note:
        parts.append(f"as fixed: {policy.note}")
    return [", ".join(parts)]


def _batches(status: Status) -> Table:
    table = _table("batch", "requests", "step in flight")
    for batch in status.batches:
        phases = ", ".join(f"{num} {phase}" for phase, num in batch.num_by_phase.items() if num)
        step = str(batch.step_id) if batch.step_id else "-"
        table.add_row(str(batch.batch), cell(phases or "-"), step)
    return table


def _totals(status: Status) -> list[str]:
    counters = status.counters
    finished = ", ".join(f"{num} {reason}" for reason, num in counters.num_finished.items())
    lines = [
        f"requests: {counters.num_requests} accepted, finished: {finished or 'none'}",
        f"steps: {counters.num_steps}, output tokens: {counters.num_output_tokens}",
    ]
    if counters.num_draft_tokens and counters.num_drafts:
        rate = counters.num_accepted_tokens / counters.num_draft_tokens
        length = 1 + counters.num_accepted_tokens / counters.num_drafts
        lines.append(
            f"drafts: {rate:.1%} of the tokens accepted, {length:.2f} tokens per verified row, "
            f"{counters.num_stale_drafts} stale, {counters.num_behind_rows} rows without while the "
            "drafter caught up"
        )
    lines += _drafted(status)
    if counters.num_ngram_tokens:
        lines.append(
            f"n-gram drafts: {counters.num_ngram_tokens} tokens where no drafts came, "
            f"{counters.num_accepted_ngram_tokens} accepted"
        )
    if counters.num_prefix_hits:
        lines.append(
            f"prefix cache: {counters.num_prefix_hits} hits, "
            f"{counters.num_prefix_hit_tokens} tokens not fed, "
            f"{counters.num_evicted_blocks} blocks evicted"
        )
    if counters.num_peak_blocks:
        lines.append(
            f"most KV blocks held: {counters.num_peak_blocks}; "
            f"{counters.num_peak_blocks_for_all} with drafts of all batches at once"
        )
    if counters.num_broken_rows or counters.num_broken_drafts:
        lines.append(
            f"not finite: {counters.num_broken_rows} requests ended, drafts of "
            f"{counters.num_broken_drafts} rows lost: see docs/operations.md"
        )
    if found := costs(status.costs):
        lines.append(f"costs: {found}")
    swaps = status.swaps
    if swaps.num_done or swaps.num_failed:
        why = f", the last error: {swaps.last_error}" if swaps.last_error else ""
        lines.append(f"swaps: {swaps.num_done} done, {swaps.num_failed} failed{why}")
    if status.num_log_lines_dropped:
        lines.append(f"log: {status.num_log_lines_dropped} lines could not be written")
    return lines


def _drafted(status: Status) -> list[str]:
    """Say what is known of drafts, verified or not."""
    lines, num_drafted = [], status.counters.num_drafted_tokens
    num_unverified = num_drafted - status.counters.num_draft_tokens
    if num_unverified > 0:
        share = num_unverified / num_drafted
        lines.append(f"drafted and never verified: {num_unverified} tokens ({share:.1%})")
    for estimate in status.estimates:
        error = estimate.calibration_error
        known = "unknown" if error is None else f"{error:.1%}"
        by_position = " ".join(f"{rate:.2f}" for rate in estimate.acceptance_by_position)
        lines.append(
            f"link {estimate.epoch}: acceptance by position {by_position}; calibration error "
            f"{known}; {estimate.num_labels} outcomes"
        )
    return lines


def costs(found: CostStatus) -> str:
    """Say where the costs of steps were learned; empty: nothing is known."""
    named = {"cache": "an earlier run", "live": "requests", "measuring": "trials under way"}
    parts = [
        f"{what} from {named.get(origin, origin)}"
        for what, origin in (("target", found.target), ("drafter", found.draft))
        if origin
    ]
    if found.num_trials:
        parts.append(
            f"{found.num_trials_over} of {found.num_trials} trials, {found.trial_ns / 1e9:.1f} s"
        )
    return ", ".join(parts)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
