"""Turns a status and the sums of the engine into metric families. Pure: no clock, no I/O.

Names are for good: boards and alerts use them. Counters begin at 0 with each process, and every
label value that can be known beforehand is there from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from minedraft.services.coordinator.telemetry.observed import NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from minedraft.admin import Span, Status
    from minedraft.services.coordinator.telemetry.histogram import Histogram
    from minedraft.services.coordinator.telemetry.observed import Observed

PREFIX: Final = "minedraft_"
FINISH_REASONS: Final = ("stop", "length", "abort", "error")
NUM_SPANS: Final = 400
"""Recent steps that the share of waiting is taken over."""

Kind = Literal["gauge", "counter", "histogram"]
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str
    """Without prefix; of a counter without `_total`."""
    kind: Kind
    text: str
    """What it is, in one sentence."""
    samples: tuple[tuple[Labels, float], ...] = ()
    histogram: Histogram | None = None


def families(status: Status, observed: Observed, spans: Sequence[Span]) -> Iterator[Family]:
    """Build all of ours.

    Args:
        status: Of the coordinator.
        observed: What the engine saw.
        spans: Recent steps.

    Yields:
        Each family once.
    """
    yield from _state(status)
    yield _gauge(
        "verifier_draft_wait_ratio",
        "Share of the verifier's time in recent steps that it waited for drafts.",
        draft_wait_ratio(spans),
    )
    yield from _totals(status, observed)
    yield from _seconds(observed)
    yield from _histograms(observed)


def draft_wait_ratio(spans: Sequence[Span]) -> float:
    """Waiting for drafts over waiting and working, in the verifier's spans; 0 without any."""
    timings = [span.timing for span in spans if span.lane == "verify"]
    waited = sum(timing.wait_ns for timing in timings)
    worked = sum(timing.total_ns for timing in timings)
    return waited / (waited + worked) if waited + worked else 0.0


def _state(status: Status) -> Iterator[Family]:
    yield _gauge("up", "1: the coordinator answered.", 1)
    yield _gauge("draining", "1: it takes no new requests.", status.draining)
    yield _gauge("requests_running", "Requests in a batch.", status.num_running)
    yield _gauge("requests_waiting", "Requests that wait for a place.", status.num_waiting)
    yield _gauge("kv_blocks", "KV blocks of the verifier.", status.num_blocks)
    yield _gauge("kv_blocks_used", "Of them, in use.", status.num_blocks_used)
    yield _gauge("kv_blocks_cached", "Others, in the prefix cache.", status.num_blocks_cached)
    yield _gauge("resident_bytes", "Resident memory of the coordinator.", status.rss_bytes)
    yield _gauge("draft_tokens_per_step", "k of the present shape.", status.shape.num_draft_tokens)
    yield _gauge("batches", "Batches in rotation.", status.shape.num_batches)
    yield Family(
        "batch_requests",
        "gauge",
        "Requests per batch of the rotation.",
        tuple(
            ((("batch", str(each.batch)),), sum(each.num_by_phase.values()))
            for each in status.batches
        ),
    )
    yield Family(
        "workers_connected",
        "gauge",
        "Workers that have joined.",
        tuple(
            ((("role", role),), sum(w.connected for w in status.workers if w.role == role))
            for role in ("verifier", "drafter")
        ),
    )
    yield Family(
        "drafter_link_epoch",
        "gauge",
        "Epoch of a drafter's token link; 0: none.",
        tuple(
            ((("address", w.address),), w.link_epoch) for w in status.workers if w.role == "drafter"
        ),
    )
    yield _gauge(
        "last_swap_seconds",
        "Duration of the last hot swap; 0: there was none.",
        status.swaps.last_duration_ns * NS,
    )


def _totals(status: Status, observed: Observed) -> Iterator[Family]:
    totals = status.counters
    yield _counter("requests", "Requests accepted.", totals.num_requests)
    yield _labelled(
        "requests_finished",
        "Requests that ended.",
        "reason",
        {**dict.fromkeys(FINISH_REASONS, 0), **totals.num_finished},
    )
    yield _counter("output_tokens", "Output tokens committed.", totals.num_output_tokens)
    yield _counter(
        "prompt_tokens", "Tokens of prompts that were computed.", observed.num_prompt_tokens
    )
    yield _counter(
        "prompt_tokens_cached", "Of them, from the prefix cache.", observed.num_cached_tokens
    )
    yield _counter("verify_steps", "Verify steps.", totals.num_steps)
    yield _counter("drafts", "Rows verified with drafts.", totals.num_drafts)
    yield _counter("draft_tokens", "Draft tokens verified.", totals.num_draft_tokens)
    yield _counter("accepted_tokens", "Draft tokens accepted.", totals.num_accepted_tokens)
    for name, counts, text in (
        ("draft_tokens_per_position", totals.num_drafted_per_position, "verified"),
        ("accepted_tokens_per_position", totals.num_accepted_per_position, "accepted"),
    ):
        most = max(status.mode.num_draft_tokens, len(totals.num_drafted_per_position))
        known = (*counts, *([0] * (most - len(counts))))
        by_position = {str(position): count for position, count in enumerate(known)}
        yield _labelled(
            name, f"Draft tokens {text}, by their place in the draft.", "position", by_position
        )
    yield _counter("stale_drafts", "Drafts that came too late to use.", totals.num_stale_drafts)
    yield _counter("ngram_tokens", "Drafts of the verifier's own.", totals.num_ngram_tokens)
    yield _counter(
        "accepted_ngram_tokens",
        "Of them, those that the target kept.",
        totals.num_accepted_ngram_tokens,
    )
    yield _counter(
        "behind_rows",
        "Rows verified without drafts: their drafter had to catch up.",
        totals.num_behind_rows,
    )
    yield _counter("preemptions", "Requests preempted.", totals.num_preemptions)
    yield _counter("prefix_hit_tokens", "Not fed: they were cached.", totals.num_prefix_hit_tokens)
    yield _counter("evicted_blocks", "Cached blocks taken again.", totals.num_evicted_blocks)
    yield _counter("moves", "Requests that changed their batch.", totals.num_moves)
    yield _counter(
        "rotating_steps", "Steps planned with several batches.", totals.num_rotating_steps
    )
    yield _counter(
        "fallback_steps", "Of them, those with an empty batch.", totals.num_fallback_steps
    )
    yield _counter("shape_switches", "Changes of the shape.", totals.num_shape_switches)
    yield _labelled(
        "swaps",
        "Hot swaps of a drafter.",
        "result",
        {"done": status.swaps.num_done, "failed": status.swaps.num_failed},
    )
    yield _counter("log_lines_dropped", "Log lines not written.", status.num_log_lines_dropped)


def _seconds(observed: Observed) -> Iterator[Family]:
    yield _counter("draft_seconds", "Time of draft steps.", observed.draft_ns * NS)
    yield _counter("verify_seconds", "Time of verify steps.", observed.verify_ns * NS)
    yield _counter(
        "overlap_seconds",
        "Time that both devices computed, by the workers' clocks.",
        observed.overlap_ns * NS,
    )
    yield _counter(
        "draft_wait_seconds", "Time that the verifier waited for drafts.", observed.wait_ns * NS
    )
    yield _counter("verifier_idle_seconds", "Time between two verify steps.", observed.idle_ns * NS)
    yield _counter(
        "bubble_seconds", "Of it, with a plan and its drafts there.", observed.bubble_ns * NS
    )


def _histograms(observed: Observed) -> Iterator[Family]:
    for name, text, histogram in (
        ("queue_seconds", "Arrival to admission.", observed.queue_s),
        ("time_to_first_token_seconds", "Arrival to the first token.", observed.ttft_s),
        (
            "inter_token_seconds",
            "From one delivery of a request to its next, of 1 to k + 1 tokens.",
            observed.gap_s,
        ),
        (
            "time_per_output_token_seconds",
            "Time per output token after the first, per request.",
            observed.token_s,
        ),
        ("prefill_seconds", "Admission to the first token.", observed.prefill_s),
        ("decode_seconds", "First token to the end.", observed.decode_s),
        ("inference_seconds", "Admission to the end.", observed.inference_s),
        ("request_seconds", "Arrival to the end.", observed.e2e_s),
        ("request_prompt_tokens", "Prompt tokens per request.", observed.prompt_tokens),
        ("request_output_tokens", "Output tokens per request.", observed.output_tokens),
        ("request_max_tokens", "Most output tokens that requests ask for.", observed.max_tokens),
        ("verify_rows", "Rows per verify step.", observed.verify_rows),
        ("draft_rows", "Rows per draft step.", observed.draft_rows),
        ("loop_lag_seconds", "Delay of the coordinator's event loop.", observed.loop_lag_s),
    ):
        yield Family(name, "histogram", text, histogram=histogram)


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(name, "gauge", text, (((), value),))


def _counter(name: str, text: str, value: float) -> Family:
    return Family(name, "counter", text, (((), value),))


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Family:
    return Family(name, "counter", text, _by(label, values.items()))


def _by(label: str, values: Iterable[tuple[str, float]]) -> tuple[tuple[Labels, float], ...]:
    return tuple((((label, value),), count) for value, count in values)
