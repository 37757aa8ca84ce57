from __future__ import annotations

import pytest

from minedraft.admin import (
    BatchStatus,
    Counters,
    ShapeStatus,
    Span,
    Status,
    SwapStatus,
    WorkerStatus,
)
from minedraft.plans import StepTiming, WorkerIdentity
from minedraft.services.coordinator.telemetry.families import draft_wait_ratio, families
from minedraft.services.coordinator.telemetry.observed import Observed
from minedraft.types import Mode, ModelInfo

IDENTITY = WorkerIdentity("id", 1, 1, 1, "0.0")
MODEL = ModelInfo("target", 100, 100, "f" * 64, "float32")
STATUS = Status(
    IDENTITY,
    Mode(2, 8, 4),
    num_waiting=3,
    num_running=5,
    num_blocks=100,
    num_blocks_used=40,
    batches=(BatchStatus(0, {"ready": 2, "drafting": 1}), BatchStatus(1)),
    workers=(
        WorkerStatus("verifier", "v:1", True, IDENTITY, MODEL),
        WorkerStatus("drafter", "d:1", False, IDENTITY, MODEL, 7),
    ),
    counters=Counters(
        num_output_tokens=12_345_678,
        num_accepted_tokens=7,
        num_finished={"stop": 2},
        num_drafted_per_position=(5, 4),
        num_accepted_per_position=(4, 1),
    ),
    shape=ShapeStatus(2, 4),
    swaps=SwapStatus(1, 2, 3_500_000_000),
)


def samples(status=STATUS, observed=None, spans=()):
    return {
        (family.name, *labels): value
        for family in families(status, observed or Observed(), spans)
        for labels, value in family.samples
    }


def test_they_hold_what_the_status_says():
    found = samples()
    assert found["requests_waiting",] == 3
    assert found["requests_running",] == 5
    assert found["kv_blocks_used",] == 40
    assert found["output_tokens",] == 12_345_678
    assert found["workers_connected", ("role", "verifier")] == 1
    assert found["workers_connected", ("role", "drafter")] == 0
    assert found["requests_finished", ("reason", "stop")] == 2
    assert found["verifier_draft_wait_ratio",] == 0
    assert found["batch_requests", ("batch", "0")] == 3
    assert found["draft_tokens_per_step",] == 4
    assert found["drafter_link_epoch", ("address", "d:1")] == 7
    assert found["swaps", ("result", "failed")] == 2
    assert found["last_swap_seconds",] == 3.5
    assert found["draft_tokens_per_position", ("position", "1")] == 4
    assert found["accepted_tokens_per_position", ("position", "0")] == 4
    assert found["accepted_tokens_per_position", ("position", "3")] == 0  # k is 4


def test_reasons_that_did_not_occur_are_there_too():
    found = samples()
    assert found["requests_finished", ("reason", "error")] == 0
    assert found["requests_finished", ("reason", "abort")] == 0


def test_every_name_is_there_once_with_a_sentence():
    found = list(families(STATUS, Observed(), ()))
    names = [family.name for family in found]
    assert len(names) == len(set(names))
    assert all(family.text.endswith(".") for family in found)
    assert all((family.histogram is None) == (family.kind != "histogram") for family in found)


def test_seconds_are_seconds():
    observed = Observed()
    observed.draft_ns, observed.verify_ns, observed.overlap_ns = 10**9, 2 * 10**9, 5 * 10**8
    found = samples(observed=observed)
    assert found["draft_seconds",] == pytest.approx(1)
    assert found["verify_seconds",] == pytest.approx(2)
    assert found["overlap_seconds",] == pytest.approx(0.5)


def test_the_share_of_waiting_is_that_of_the_verifier():
    spans = (
        Span("verify", 0, 1, StepTiming(total_ns=60, wait_ns=20)),
        Span("verify", 1, 2, StepTiming(total_ns=15, wait_ns=5)),
        Span("draft", 1, 2, StepTiming(total_ns=500, wait_ns=500)),
    )
    assert draft_wait_ratio(spans) == pytest.approx(0.25)
