"""Serves the coordinator's status as Prometheus metrics. Asks at each scrape; keeps nothing.

It runs beside the coordinator with role `monitor`, which may read and change nothing. Prompts,
outputs and request ids never pass here.
"""
# ruff: noqa: INP001

from __future__ import annotations

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from minedraft import log as logging
from minedraft.client import SyncClient
from minedraft.errors import MineDraftError
from minedraft.exit import end_at_sigterm
from minedraft.security.secret import security_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from minedraft.admin import Span, Status

log = structlog.get_logger("status_exporter")

PREFIX = "minedraft_"
TIMEOUT_S = 5.0
NUM_SPANS = 400
"""Recent steps that the share of waiting is taken over."""


def exposition(status: Status, spans: Sequence[Span]) -> str:
    """Render a status in Prometheus' text format, version 0.0.4."""
    lines: list[str] = []

    def metric(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        full = PREFIX + name
        lines.extend((f"# HELP {full} {text}", f"# TYPE {full} {kind}"))
        lines.extend(f"{full}{labels} {value:g}" for labels, value in samples)

    def gauge(name: str, text: str, value: float) -> None:
        metric(name, "gauge", text, [("", value)])

    def counter(name: str, text: str, value: int) -> None:
        lines.append(f"# HELP {PREFIX}{name} {text}")
        lines.append(f"# TYPE {PREFIX}{name} counter")
        lines.append(f"{PREFIX}{name} {value}")  # exact: %g would round a large one

    totals = status.counters
    gauge("up", "1: the coordinator answered.", 1)
    gauge("draining", "1: it takes no new requests.", status.draining)
    gauge("requests_running", "Requests in a batch.", status.num_running)
    gauge("requests_waiting", "Requests that wait for a place.", status.num_waiting)
    gauge("kv_blocks", "KV blocks of the verifier.", status.num_blocks)
    gauge("kv_blocks_used", "Of them, in use.", status.num_blocks_used)
    gauge("kv_blocks_cached", "Others, in the prefix cache.", status.num_blocks_cached)
    gauge("resident_bytes", "Resident memory of the coordinator.", status.rss_bytes)
    metric("workers_connected", "gauge", "Workers that have joined.", _connected(status))
    gauge(
        "verifier_draft_wait_ratio",
        "Share of the verifier's time in recent steps that went by in waiting for drafts.",
        draft_wait_ratio(spans),
    )
    counter("requests_total", "Requests accepted.", totals.num_requests)
    metric(
        "requests_finished_total",
        "counter",
        "Requests that ended.",
        ((f'{{reason="{_escaped(why)}"}}', n) for why, n in sorted(totals.num_finished.items())),
    )
    counter("output_tokens_total", "Output tokens committed.", totals.num_output_tokens)
    counter("verify_steps_total", "Verify steps.", totals.num_steps)
    counter("draft_tokens_total", "Draft tokens verified.", totals.num_draft_tokens)
    counter("accepted_tokens_total", "Draft tokens accepted.", totals.num_accepted_tokens)
    counter("stale_drafts_total", "Drafts that came too late to use.", totals.num_stale_drafts)
    counter(
        "behind_rows_total",
        "Rows verified without drafts: their drafter had to catch up.",
        totals.num_behind_rows,
    )
    counter("preemptions_total", "Requests preempted.", totals.num_preemptions)
    counter("prefix_hit_tokens_total", "Not fed: they were cached.", totals.num_prefix_hit_tokens)
    counter("evicted_blocks_total", "Cached blocks taken again.", totals.num_evicted_blocks)
    counter("log_lines_dropped_total", "Log lines not written.", status.num_log_lines_dropped)
    return "\n".join([*lines, ""])


def draft_wait_ratio(spans: Sequence[Span]) -> float:
    """Waiting for drafts over waiting and working, in the verifier's spans; 0 without any."""
    timings = [span.timing for span in spans if span.lane == "verify"]
    waited = sum(timing.wait_ns for timing in timings)
    worked = sum(timing.total_ns for timing in timings)
    return waited / (waited + worked) if waited + worked else 0.0


def _connected(status: Status) -> Iterator[tuple[str, float]]:
    for role in ("verifier", "drafter"):
        number = sum(each.connected for each in status.workers if each.role == role)
        yield f'{{role="{role}"}}', number


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def scrape(address: str, tls: Path) -> str:
    """Ask the coordinator; that it is away is a metric too.

    Args:
        address: Of the coordinator.
        tls: Directory of the secret. Looked into each time: it may come when this has started.
    """
    try:
        with SyncClient(address, timeout_s=TIMEOUT_S, security=security_in(tls)) as client:
            return exposition(client.status(), client.timeline(max_spans=NUM_SPANS))
    except MineDraftError as err:
        log.warning("scrape.failed", why=str(err))
        return f"# TYPE {PREFIX}up gauge\n{PREFIX}up 0\n"


def handler(address: str, tls: Path) -> type[BaseHTTPRequestHandler]:
    """Build the class that answers GET /metrics."""

    class Handler(BaseHTTPRequestHandler):
        """Answers one scrape."""

        timeout = 10.0  # of a peer that says nothing

        def do_GET(self) -> None:
            """Answer."""
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = scrape(address, tls).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """A scrape is no event."""

    return Handler


def main() -> None:
    """Serve until told to leave."""
    end_at_sigterm()
    logging.configure("status_exporter", json=True)
    host, _, port = os.environ["EXPORTER_LISTEN"].rpartition(":")
    answer = handler(os.environ["MINEDRAFT_ADDRESS"], Path(os.environ.get("TLS_DIRECTORY", "")))
    ThreadingHTTPServer((host, int(port)), answer).serve_forever()


if __name__ == "__main__":
    main()
