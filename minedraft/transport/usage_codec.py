"""Protobuf <-> what a worker holds."""

from __future__ import annotations

from minedraft.plans import WorkerUsage
from minedraft.v1 import drafter_pb2, types_pb2

_FIELDS = tuple(WorkerUsage.__slots__)


def usage_to_drafter_answer(usage: WorkerUsage) -> drafter_pb2.DrafterSessionResponse:
    """WorkerUsage -> the drafter's session message."""
    return drafter_pb2.DrafterSessionResponse(usage=usage_to_proto(usage))


def usage_to_proto(usage: WorkerUsage) -> types_pb2.WorkerUsage:
    """WorkerUsage -> message."""
    return types_pb2.WorkerUsage(**{name: getattr(usage, name) for name in _FIELDS})


def usage_from_proto(message: types_pb2.WorkerUsage) -> WorkerUsage:
    """Message -> WorkerUsage."""
    return WorkerUsage(*(getattr(message, name) for name in _FIELDS))
