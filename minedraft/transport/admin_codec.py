"""Operator values <-> protobuf, both directions. Values only."""

from __future__ import annotations

from minedraft.admin import BatchStatus, Counters, Mode, Span, Status, WorkerStatus
from minedraft.errors import InvalidRequestError
from minedraft.transport import plan_codec
from minedraft.v1 import admin_pb2

_COUNTS = tuple(name for name in Counters.__slots__ if name != "num_finished")
_SPAN_FIELDS = tuple(name for name in Span.__slots__ if name != "timing")
_MODE_FIELDS = tuple(Mode.__slots__)


def mode_to_proto(mode: Mode) -> admin_pb2.SetModeRequest:
    """Mode -> message.

    Raises:
        InvalidRequestError: a value that does not fit its field.
    """
    message = admin_pb2.SetModeRequest()
    for name in _MODE_FIELDS:
        value = getattr(mode, name)
        try:
            setattr(message, name, value)
        except (TypeError, ValueError) as err:
            raise InvalidRequestError(f"mode.{name}={value!r}: {err}", field=name) from None
    return message


def mode_from_proto(message: admin_pb2.SetModeRequest) -> Mode:
    """Message -> Mode."""
    return Mode(message.num_batches, message.max_batch_size, message.num_draft_tokens)


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
        workers=[_worker_to_proto(worker) for worker in status.workers],
        counters=admin_pb2.Counters(
            num_finished=dict(status.counters.num_finished),
            **{name: getattr(status.counters, name) for name in _COUNTS},
        ),
        draining=status.draining,
        rss_bytes=status.rss_bytes,
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
        workers=tuple(_worker_from_proto(worker) for worker in message.workers),
        counters=Counters(
            num_finished=dict(counters.num_finished),
            **{name: getattr(counters, name) for name in _COUNTS},
        ),
        draining=message.draining,
        rss_bytes=message.rss_bytes,
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
    )
