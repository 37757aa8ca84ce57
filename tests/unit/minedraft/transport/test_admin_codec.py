from __future__ import annotations

import pytest

from minedraft.admin import (
    BatchStatus,
    CostStatus,
    Counters,
    DraftEstimate,
    PolicyStatus,
    ShapeStatus,
    Span,
    Status,
    SwapOrder,
    WorkerStatus,
)
from minedraft.errors import InvalidRequestError
from minedraft.plans import StepTiming, WorkerIdentity, WorkerUsage
from minedraft.transport import admin_codec
from minedraft.types import Mode, ModelInfo
from minedraft.v1 import admin_pb2

IDENTITY = WorkerIdentity("i", 1, 5, 6, "0.1")
MODEL = ModelInfo("m", 100, 64, "ab", "float32", (1, 2), 16, 8, "model", "cd", "c/avx2")


def test_a_status_survives_the_wire():
    status = Status(
        identity=IDENTITY,
        mode=Mode(2, 8, 4),
        batches=(BatchStatus(0, {"ready": 3}, 7), BatchStatus(1)),
        num_waiting=1,
        num_running=2,
        num_blocks=3,
        num_blocks_used=4,
        costs=CostStatus("trials", "cache", 46, 45, 7),
        num_blocks_cached=3,
        workers=(
            WorkerStatus(
                "drafter",
                "h:1",
                connected=True,
                identity=IDENTITY,
                model=MODEL,
                link_epoch=2,
                link_description="gloo",
                last_error="none",
                usage=WorkerUsage(12, 3, 2**40),
            ),
            WorkerStatus("verifier", "h:2", connected=False, identity=IDENTITY, model=MODEL),
        ),
        counters=Counters(1, {"stop": 2}, *range(3, 17)),
        draining=True,
        rss_bytes=11,
        shape=ShapeStatus(2, 4),
        policy=PolicyStatus("wcs", "costs are not known yet", 3.5, 20.25),
        candidates=(
            ShapeStatus(1, 0, is_wide=True, tokens_per_s=61.5),
            ShapeStatus(2, 4, tokens_per_s=0.0),
            ShapeStatus(3, 4),
        ),
        estimates=(DraftEstimate(3, 700, 0.0, (0.9, 0.5)), DraftEstimate(4, 5)),
    )
    assert admin_codec.status_from_proto(admin_codec.status_to_proto(status)) == status


def test_a_span_survives_the_wire():
    span = Span("verify", 1, 9, StepTiming(1, 2, 3, 4, 5, 6, 7, 8), 2, 3, 4, 5, 6)
    assert admin_codec.span_from_proto(admin_codec.span_to_proto(span)) == span


def test_a_mode_survives_the_wire_and_names_what_does_not_fit():
    for mode in (Mode(2, 16, 0), Mode(2, 16, 0, "auto", "wcs")):
        assert admin_codec.mode_from_proto(admin_codec.mode_to_proto(mode)) == mode
    message = admin_pb2.SetModeRequest(num_batches=2, max_batch_size=8)
    assert admin_codec.mode_from_proto(message) == Mode(2, 8, 0, "fixed", ""), "an older client"
    with pytest.raises(InvalidRequestError, match="max_batch_size=-1"):
        admin_codec.mode_to_proto(Mode(1, -1, 0))


@pytest.mark.parametrize("name", ["model", "address", "replace"])
def test_a_swap_order_names_what_is_no_text(name: str):
    values = {"model": "m", name: 5} if name != "address" else {name: 5}
    with pytest.raises(InvalidRequestError, match=f"^{name}=5: ") as caught:
        admin_codec.swap_order_to_proto(SwapOrder(**values))  # type: ignore[arg-type]
    assert caught.value.field == name


@pytest.mark.parametrize(("order", "field"), [((-1, 0), "max_spans"), ((1, "x"), "since_unix_ns")])
def test_a_timeline_order_names_what_does_not_fit(order, field: str):
    with pytest.raises(InvalidRequestError, match=f"^{field}=") as caught:
        admin_codec.timeline_order_to_proto(*order)
    assert caught.value.field == field
