"""Measures how late the event loop is: what blocks it delays every stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PERIOD_S: Final = 0.25


async def measure(
    observe: Callable[[float], None],
    *,
    clock: Callable[[], float] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Tell `observe`, four times per second, by how many seconds the loop woke us up late.

    Args:
        observe: Takes seconds, >= 0.
        clock: Monotonic seconds; None: the loop's.
        sleep: Waits.
    """
    now = asyncio.get_running_loop().time if clock is None else clock
    while True:
        due = now() + PERIOD_S
        await sleep(PERIOD_S)
        observe(max(now() - due, 0.0))
