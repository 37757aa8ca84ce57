"""Checks whether requests fit: into the queue now, into the KV pool ever. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.errors import DuplicateRequestError, InvalidRequestError, QueueFullError

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from minedraft.prefix import PrefixCache
    from minedraft.services.coordinator.core.request import Request
    from minedraft.types import RequestId


def check_ids(request_ids: Sequence[RequestId], live: Container[RequestId]) -> None:
    """Check that new requests have ids that neither a live one has nor another of them.

    Raises:
        DuplicateRequestError: one does not.
    """
    for index, request_id in enumerate(request_ids):
        if request_id in live or request_id in request_ids[:index]:
            raise DuplicateRequestError(f"request_id {request_id!r} is in use")


def check_queue(num_waiting: int, count: int, max_waiting: int) -> None:
    """Check that `count` samples of one request fit into a queue of `num_waiting` requests.

    Raises:
        InvalidRequestError: they never will.
        QueueFullError: not now.
    """
    if count > max_waiting:
        raise InvalidRequestError(
            f"sampling.n is {count}, want at most {max_waiting}: max_waiting_requests",
            field="sampling.n",
        )
    if num_waiting + count > max_waiting:
        raise QueueFullError(
            f"{num_waiting} requests wait and {count} more do not fit: "
            f"max_waiting_requests is {max_waiting}"
        )


def fits(request: Request, blocks: PrefixCache) -> bool:
    """Whether a pool can hold a request when it is alone there."""
    return blocks.blocks_for(request.max_num_computed) <= blocks.num_blocks


def too_large(request: Request, blocks: PrefixCache) -> InvalidRequestError:
    """Build the error for a request that a pool can never hold."""
    return InvalidRequestError(
        f"prompt of {len(request.prompt_token_ids)} and max_tokens {request.max_tokens} "
        f"need {blocks.blocks_for(request.max_num_computed)} KV blocks, "
        f"the pool has {blocks.num_blocks}",
        field="sampling.max_tokens",
    )
