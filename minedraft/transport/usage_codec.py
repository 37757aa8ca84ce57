"""Protobuf <-> what a worker holds."""

from __future__ import annotations

from minedraft.plans import WorkerUsage
from minedraft.v1 import drafter_pb2, types_pb2


def usage_to_drafter_answer(usage: WorkerUsage) -> drafter_pb2.DrafterSessionResponse:
    """WorkerUsage -> the drafter's session message."""
    return drafter_pb2.DrafterSessionResponse(usage=usage_to_proto(usage))


def usage_to_proto(usage: WorkerUsage) -> types_pb2.WorkerUsage:
    """WorkerUsage -> message."""
    return types_pb2.WorkerUsage(
        num_blocks=usage.num_blocks,
        num_blocks_used=usage.num_blocks_used,
        rss_bytes=usage.rss_bytes,
    )


def usage_from_proto(message: types_pb2.WorkerUsage) -> WorkerUsage:
    """Message -> WorkerUsage."""
    return WorkerUsage(message.num_blocks, message.num_blocks_used, message.rss_bytes)
