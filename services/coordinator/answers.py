"""Whether a verifier's answer makes sense, before anything is committed or counted. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.errors import ProtocolError
from minedraft.services.coordinator.request import Phase

if TYPE_CHECKING:
    from minedraft.plans import RowResult
    from minedraft.services.coordinator.request import Request


def check_row(request: Request, row: RowResult, num_planned_drafts: int, vocab_size: int) -> None:
    """Raise ProtocolError unless `row` continues `request` within what was planned."""
    must_sample = request.phase is not Phase.PREFILLING or (
        request.num_computed == request.num_tokens
    )
    fits = (
        row.base_len == request.num_tokens
        and bool(row.token_ids) == must_sample
        and row.num_accepted_tokens <= row.num_draft_tokens <= num_planned_drafts
        and len(row.token_ids) == (row.num_accepted_tokens + 1 if must_sample else 0)
        and all(0 <= token_id < vocab_size for token_id in row.token_ids)
        and (request.params.logprobs is None or len(row.logprobs) == len(row.token_ids))
    )
    if not fits:
        raise ProtocolError(
            f"row {row.row_id}: base_len {row.base_len}, {len(row.token_ids)} tokens, "
            f"{row.num_accepted_tokens} of {row.num_draft_tokens} drafts accepted, "
            f"but the committed length is {request.num_tokens} ({request.phase.value})"
        )
