"""Operator values <-> protobuf, both directions. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    SwapResult,
    SwapStatus,
    WorkerStatus,
)
from minedraft.errors import InvalidRequestError
from minedraft.transport import plan_codec, usage_codec
from minedraft.transport.fields import set_field
from minedraft.types import Mode
from minedraft.v1 import admin_pb2

if TYPE_CHECKING:
    from minedraft.v1 import generation_pb2

_PER_POSITION = ("num_drafted_per_position", "num_accepted_per_position")
_COUNTS = tuple(name for name in Counters.__slots__ if name not in {"num_finished", *_PER_POSITION})
_SPAN_FIELDS = tuple(name for name in Span.__slots__ if name != "timing")
_MODE_FIELDS = tuple(Mode.__slots__)


def mode_to_proto(mode: Mode) -> admin_pb2.SetModeRequest:
    """Mode -> message.

    Raises:
        InvalidRequestError: a value that does not fit its field.
    """
    message = admin_pb2.SetModeRequest()
    for name in _MODE_FIELDS:
        set_field(message, name, getattr(mode, name), name)
    return message


def mode_from_proto(
    message: admin_pb2.SetModeRequest | generation_pb2.GetServerInfoResponse,
) -> Mode:
    """Message -> Mode; a caller that knows no shapes means a fixed one, the policy may stay."""
    return Mode(
        message.num_batches,
        message.max_batch_size,
        message.num_draft_tokens,
        message.shape or "fixed",
        message.policy,
    )


def status_to_proto(status: Status) -> admin_pb2.GetStatusResponse:
    """Status -> message."""
    return admin_pb2.GetStatusResponse(
        identity=plan_codec.identity_to_proto(status.identity),
        mode=mode_to_proto(status.mode),
        batches=[
            admin_pb2.BatchStatus(
                batch=batch.batch, num_by_phase=dict(batch.num_by_phase), step_id=batch.step_id
            )
            for batch in status.batches
        ],
        num_waiting=status.num_waiting,
        num_running=status.num_running,
        num_blocks=status.num_blocks,
        num_blocks_used=status.num_blocks_used,
        num_blocks_cached=status.num_blocks_cached,
        workers=[_worker_to_proto(worker) for worker in status.workers],
        counters=admin_pb2.Counters(
            num_finished=dict(status.counters.num_finished),
            **{name: getattr(status.counters, name) for name in (*_COUNTS, *_PER_POSITION)},
        ),
        draining=status.draining,
        rss_bytes=status.rss_bytes,
        num_log_lines_dropped=status.num_log_lines_dropped,
        swaps=admin_pb2.SwapStatus(
            **{name: getattr(status.swaps, name) for name in SwapStatus.__slots__}
        ),
        costs=admin_pb2.CostStatus(
            **{name: getattr(status.costs, name) for name in CostStatus.__slots__}
        ),
        shape=_shape_to_proto(status.shape),
        candidates=[_shape_to_proto(shape) for shape in status.candidates],
        policy=admin_pb2.PolicyStatus(
            **{name: getattr(status.policy, name) for name in PolicyStatus.__slots__}
        ),
        estimates=[
            admin_pb2.DraftEstimate(
                **{name: getattr(estimate, name) for name in DraftEstimate.__slots__}
            )
            for estimate in status.estimates
        ],
    )


def status_from_proto(message: admin_pb2.GetStatusResponse) -> Status:
    """Message -> Status."""
    counters = message.counters
    return Status(
        identity=plan_codec.identity_from_proto(message.identity),
        mode=mode_from_proto(message.mode),
        batches=tuple(
            BatchStatus(batch.batch, dict(batch.num_by_phase), batch.step_id)
            for batch in message.batches
        ),
        num_waiting=message.num_waiting,
        num_running=message.num_running,
        num_blocks=message.num_blocks,
        num_blocks_used=message.num_blocks_used,
        num_blocks_cached=message.num_blocks_cached,
        workers=tuple(_worker_from_proto(worker) for worker in message.workers),
        counters=Counters(
            num_finished=dict(counters.num_finished),
            **{name: getattr(counters, name) for name in _COUNTS},
            num_drafted_per_position=tuple(counters.num_drafted_per_position),
            num_accepted_per_position=tuple(counters.num_accepted_per_position),
        ),
        draining=message.draining,
        rss_bytes=message.rss_bytes,
        num_log_lines_dropped=message.num_log_lines_dropped,
        swaps=SwapStatus(*(getattr(message.swaps, name) for name in SwapStatus.__slots__)),
        costs=CostStatus(*(getattr(message.costs, name) for name in CostStatus.__slots__)),
        shape=_shape_from_proto(message.shape),
        candidates=tuple(_shape_from_proto(shape) for shape in message.candidates),
        policy=PolicyStatus(*(getattr(message.policy, name) for name in PolicyStatus.__slots__)),
        estimates=tuple(_estimate_from_proto(estimate) for estimate in message.estimates),
    )


def _shape_to_proto(shape: ShapeStatus) -> admin_pb2.Shape:
    return admin_pb2.Shape(
        num_batches=shape.num_batches,
        num_draft_tokens=shape.num_draft_tokens,
        is_wide=shape.is_wide,
        tokens_per_s=shape.tokens_per_s,
    )


def _shape_from_proto(shape: admin_pb2.Shape) -> ShapeStatus:
    is_known = shape.HasField("tokens_per_s")
    return ShapeStatus(
        shape.num_batches,
        shape.num_draft_tokens,
        shape.is_wide,
        shape.tokens_per_s if is_known else None,
    )


def _estimate_from_proto(estimate: admin_pb2.DraftEstimate) -> DraftEstimate:
    is_known = estimate.HasField("calibration_error")
    return DraftEstimate(
        estimate.epoch,
        estimate.num_labels,
        estimate.calibration_error if is_known else None,
        tuple(estimate.acceptance_by_position),
    )


def swap_order_to_proto(order: SwapOrder) -> admin_pb2.SwapDrafterRequest:
    """SwapOrder -> message.

    Raises:
        InvalidRequestError: not exactly one of model and address, or one that is no text.
    """
    if bool(order.model) == bool(order.address):
        raise InvalidRequestError(
            f"swap: want exactly one of model and address, got model={order.model!r} "
            f"and address={order.address!r}",
            field="source",
        )
    request = admin_pb2.SwapDrafterRequest()
    set_field(request, "replace", order.replace, "replace")
    source = "model" if order.model else "address"
    set_field(request, source, getattr(order, source), source)
    return request


def swap_order_from_proto(message: admin_pb2.SwapDrafterRequest) -> SwapOrder:
    """Message -> SwapOrder.

    Raises:
        InvalidRequestError: neither model nor address.
    """
    order = SwapOrder(model=message.model, address=message.address, replace=message.replace)
    if not order.model and not order.address:
        raise InvalidRequestError("swap: want a model or an address, got neither", field="source")
    return order


def timeline_order_to_proto(max_spans: int, since_unix_ns: int) -> admin_pb2.GetTimelineRequest:
    """Selection of the timeline -> message.

    Raises:
        InvalidRequestError: a value that does not fit its field.
    """
    request = admin_pb2.GetTimelineRequest()
    set_field(request, "max_spans", max_spans, "max_spans")
    set_field(request, "since_unix_ns", since_unix_ns, "since_unix_ns")
    return request


def swap_result_to_proto(result: SwapResult) -> admin_pb2.SwapDrafterResponse:
    """SwapResult -> message."""
    return admin_pb2.SwapDrafterResponse(
        epoch=result.epoch,
        model=plan_codec.model_info_to_proto(result.model),
        duration_ns=result.duration_ns,
        warm_up_ns=result.warm_up_ns,
    )


def swap_result_from_proto(message: admin_pb2.SwapDrafterResponse) -> SwapResult:
    """Message -> SwapResult."""
    return SwapResult(
        epoch=message.epoch,
        model=plan_codec.model_info_from_proto(message.model),
        duration_ns=message.duration_ns,
        warm_up_ns=message.warm_up_ns,
    )


def span_to_proto(span: Span) -> admin_pb2.Span:
    """Span -> message."""
    return admin_pb2.Span(
        timing=plan_codec.timing_to_proto(span.timing),
        **{name: getattr(span, name) for name in _SPAN_FIELDS},
    )


def span_from_proto(message: admin_pb2.Span) -> Span:
    """Message -> Span."""
    return Span(
        timing=plan_codec.timing_from_proto(message.timing),
        **{name: getattr(message, name) for name in _SPAN_FIELDS},
    )


def _worker_to_proto(worker: WorkerStatus) -> admin_pb2.WorkerStatus:
    return admin_pb2.WorkerStatus(
        role=worker.role,
        address=worker.address,
        connected=worker.connected,
        identity=plan_codec.identity_to_proto(worker.identity),
        model=plan_codec.model_info_to_proto(worker.model),
        link_epoch=worker.link_epoch,
        link_description=worker.link_description,
        last_error=worker.last_error,
        usage=usage_codec.usage_to_proto(worker.usage) if worker.usage is not None else None,
    )


def _worker_from_proto(message: admin_pb2.WorkerStatus) -> WorkerStatus:
    return WorkerStatus(
        role=message.role,
        address=message.address,
        connected=message.connected,
        identity=plan_codec.identity_from_proto(message.identity),
        model=plan_codec.model_info_from_proto(message.model),
        link_epoch=message.link_epoch,
        link_description=message.link_description,
        last_error=message.last_error,
        usage=usage_codec.usage_from_proto(message.usage) if message.HasField("usage") else None,
    )
