"""What became of the rows of a verify step: what a driver keeps, and what the core made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from minedraft.plans import RowResult
from minedraft.services.coordinator.core.request import Request

ERROR: Final = "error"
"""Counted as the reason of a request that ends with an error; no caller sees it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How much of a row's tokens belongs to the output."""

    num_tokens: int
    reason: str | None = None
    """Why the output ends with them; None: it goes on."""


Keep: TypeAlias = Callable[[Request, RowResult], Kept]
"""Walks a row's tokens, which are not committed yet."""


@dataclass(slots=True)
class Outcome:
    """A row whose request was live, and has new tokens or an error."""

    request: Request
    row: RowResult
    failure: Exception | None = None
    """Why it could not be committed; the request has ended. It also has if the row has an error."""
