"""Waits for the other end of a link, in bounded time, and cleans up on failure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from minedraft.errors import DeadlineError, WorkerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from minedraft.packets.spec import LinkSpec

T = TypeVar("T")


async def await_peer(formed: Future[T], spec: LinkSpec, *, abandon: Callable[[], None]) -> T:
    """Wait until the link has formed, at most the spec's timeout.

    Args:
        formed: Resolved by whoever forms it, in any thread; already running, so not cancellable.
        spec: The link.
        abandon: Called when it is given up: timeout, failure or cancellation.

    Raises:
        WorkerUnavailableError: the timeout passed.
        MineDraftError: what `formed` holds.
    """
    try:
        return await asyncio.wait_for(asyncio.wrap_future(formed), spec.timeout_s)
    except (TimeoutError, DeadlineError):
        abandon()
        raise WorkerUnavailableError(
            f"link {spec.name} ({spec.transport.value}): the peer did not come "
            f"within timeout_s={spec.timeout_s:g}"
        ) from None
    except BaseException:  # cancellation too: no half link stays
        abandon()
        raise
