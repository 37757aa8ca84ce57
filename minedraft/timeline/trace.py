"""Spans as a Chrome trace: open it in ui.perfetto.dev or chrome://tracing. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minedraft.timeline.window import LANES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.admin import Span

_NAMES = {"draft": "drafter", "verify": "verifier"}


def to_chrome_trace(spans: Sequence[Span]) -> dict[str, Any]:
    """Build a trace-event document; `json.dump` it.

    One track a device, one slice a step, inside it the forward pass and the sampling. Times are
    microseconds since the first span.
    """
    begin = min((span.start_ns for span in spans), default=0)
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "MineDraft"}}
    ]
    for tid, lane in enumerate(LANES, start=1):
        name = {"name": _NAMES[lane]}
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": name})
    for span in spans:
        if span.lane not in LANES:  # a lane of a newer coordinator, or an invented one
            continue
        tid = LANES.index(span.lane) + 1
        timing, start = span.timing, span.start_ns - begin
        events.append(
            _slice(tid, f"{span.lane} {span.step_id} (batch {span.batch})", start, timing.total_ns)
            | {"cat": f"batch{span.batch}", "args": _arguments(span)}
        )
        if timing.forward_ns:
            events.append(_slice(tid, "forward", start, timing.forward_ns))
        if timing.sample_ns:
            # Sampling comes last in a step; what lies between is input preparation.
            begin_ns = start + timing.total_ns - timing.sample_ns
            events.append(_slice(tid, "sample", begin_ns, timing.sample_ns))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _slice(tid: int, name: str, start_ns: int, length_ns: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": 1,
        "tid": tid,
        "name": name,
        "ts": start_ns / 1000,
        "dur": length_ns / 1000,
    }


def _arguments(span: Span) -> dict[str, Any]:
    timing = span.timing
    return {
        "step": span.step_id,
        "batch": span.batch,
        "rows": span.num_rows,
        "tokens": span.num_tokens,
        "draft_tokens": span.num_draft_tokens,
        "accepted_tokens": span.num_accepted_tokens,
        "prefill_rows": span.num_prefill_rows,
        "wait_ms": timing.wait_ns / 1e6,
        "idle_ms": timing.idle_ns / 1e6,
        "bubble_ms": timing.bubble_ns / 1e6,
        "cpu_ms": timing.cpu_ns / 1e6,
    }
