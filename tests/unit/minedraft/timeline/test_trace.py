from __future__ import annotations

import json

from minedraft.timeline.trace import to_chrome_trace
from tests.unit.minedraft.timeline.rotation import spans


def test_every_span_is_a_slice_on_the_track_of_its_device():
    made = spans(3)
    document = json.loads(json.dumps(to_chrome_trace(made)))
    tracks = {
        event["tid"]: event["args"]["name"]
        for event in document["traceEvents"]
        if event["name"] == "thread_name"
    }
    steps = [event for event in document["traceEvents"] if "args" in event and event["ph"] == "X"]
    assert [tracks[event["tid"]] for event in steps] == ["drafter", "verifier"] * 3
    assert steps[0]["ts"] == 0
    assert steps[1]["ts"] == 30_000
    assert steps[1]["dur"] == 28_000
    assert steps[1]["args"]["accepted_tokens"] == 5
    assert steps[1]["args"]["bubble_ms"] == 1


def test_parts_of_a_step_lie_inside_it():
    events = [e for e in to_chrome_trace(spans(1))["traceEvents"] if e["ph"] == "X"]
    verify = next(e for e in events if e["name"].startswith("verify"))
    for part in ("forward", "sample"):
        inner = next(e for e in events if e["name"] == part)
        assert verify["ts"] <= inner["ts"]
        assert inner["ts"] + inner["dur"] <= verify["ts"] + verify["dur"]


def test_no_spans_are_an_empty_trace():
    assert all(event["ph"] == "M" for event in to_chrome_trace([])["traceEvents"])
