"""Commits what the driver keeps of each row of a verify step. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from minedraft.plans import RowResult
from minedraft.services.coordinator.core.request import Request

ERROR: Final = "error"
"""Counted as the reason of a request that ends with an error; no caller sees it."""


class Kept(NamedTuple):
    """How much of a row's tokens belongs to the output."""

    num_tokens: int
    reason: str | None = None
    """Why the output ends with them; None: it continues."""


Keep: TypeAlias = Callable[[Request, RowResult], Kept]
"""Walks a row's tokens, which are not committed yet."""


@dataclass(slots=True)
class Outcome:
    """A row whose request was live, and has new tokens or an error."""

    request: Request
    row: RowResult
    num_committed_tokens: int = 0
    reason: str | None = None
    """Why the request has ended; None: it continues."""
    failure: Exception | None = None
    """Why the row could not be committed; then the reason is `ERROR`."""


def settle(request: Request, row: RowResult, keep: Keep) -> Outcome:
    """Commit what `keep` keeps of a row. A failure is the outcome's, so that other rows go on."""
    if row.error is not None:
        return Outcome(request, row, reason=ERROR)
    try:
        num_tokens, reason = keep(request, row)
        token_ids = row.token_ids[:num_tokens]
        request.commit(token_ids)
        request.observe(0 if row.is_ngram else row.num_draft_tokens, row.num_accepted_tokens)
        return Outcome(request, row, len(token_ids), reason)
    except Exception as err:  # noqa: BLE001 the driver hears of it
        # Half of it may be done: to go on would give its caller another output.
        return Outcome(request, row, reason=ERROR, failure=err)
