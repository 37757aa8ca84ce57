"""The checks of `hostile.py`, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostile_checks.requests import large_requests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hostile_checks.stage import Stage

CHECKS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "large_requests": large_requests,
}
