"""Checks a verifier's answer before anything is committed or counted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minedraft.errors import ProtocolError
from minedraft.plans import RowResult
from minedraft.services.coordinator.core.request import Phase

if TYPE_CHECKING:
    from minedraft.plans import VerifyResult
    from minedraft.services.coordinator.core.request import Request
    from minedraft.services.coordinator.core.step import Step


@dataclass(slots=True)
class Answer:
    """A checked answer of the verifier, with its sums over all rows, live or not."""

    rows: list[tuple[Request, RowResult]]
    """Rows of live requests; the others ended meanwhile."""
    num_drafts: int = 0
    """Rows with drafts."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_refused_tokens: int = 0
    """Drafts that the target looked at and did not keep: at most one per row."""
    num_broken_rows: int = 0
    """Rows that cannot go on."""
    judged: list[tuple[int, int]] = field(default_factory=list)
    """Of each row with drafts: how many it had, and how many were accepted."""
    num_offered: int = 0
    """Rows whose drafts came, verified or not."""
    num_ngram_tokens: int = 0
    """Drafts of the verifier's own; in none of the numbers of drafts."""
    num_accepted_ngram_tokens: int = 0


def read_answer(step: Step, result: VerifyResult, vocab_size: int) -> Answer:
    """Check a step's answer, and sum it up.

    Raises:
        ProtocolError: a row makes no sense, or one is missing.
    """
    left, planned = dict(step.requests), step.num_draft_tokens
    rows: list[tuple[Request, RowResult]] = []
    judged: list[tuple[int, int]] = []
    num_drafts = num_draft_tokens = num_accepted_tokens = num_refused = num_broken = 0
    num_ngram_tokens = num_accepted_ngram_tokens = 0
    for row in result.rows:
        request = left.pop(row.row_id, None)
        if request is not None:
            most = step.num_ngram_tokens.get(row.row_id, 0) if row.is_ngram else planned[row.row_id]
            check_row(request, row, most, vocab_size)
            rows.append((request, row))
        if row.error is not None:
            num_broken += 1
        k = row.num_draft_tokens
        if row.is_ngram:
            num_ngram_tokens += k
            num_accepted_ngram_tokens += row.num_accepted_tokens
        elif k:
            num_accepted = row.num_accepted_tokens
            num_drafts += 1
            num_draft_tokens += k
            num_accepted_tokens += num_accepted
            num_refused += num_accepted < k
            judged.append((k, num_accepted))
    if left:
        raise ProtocolError(f"step {step.step_id}: rows {sorted(left)} are missing")
    num_planned = len(planned) - list(planned.values()).count(0)
    return Answer(
        rows,
        num_drafts,
        num_draft_tokens,
        num_accepted_tokens,
        num_refused,
        num_broken,
        judged,
        max(num_planned - result.num_stale_drafts, num_drafts),
        num_ngram_tokens,
        num_accepted_ngram_tokens,
    )


def check_row(request: Request, row: RowResult, num_planned_drafts: int, vocab_size: int) -> None:
    """Raise ProtocolError unless `row` continues `request` within what was planned."""
    num_tokens, token_ids = request.num_tokens, row.token_ids
    if row.error is not None:
        fits = row == RowResult(row.row_id, num_tokens, (), error=row.error)
    else:
        must_sample = request.phase is not Phase.PREFILLING or request.num_computed == num_tokens
        fits = (
            row.base_len == num_tokens
            and row.num_accepted_tokens <= row.num_draft_tokens <= num_planned_drafts
            and len(token_ids) == (row.num_accepted_tokens + 1 if must_sample else 0)
            and (not token_ids or (min(token_ids) >= 0 and max(token_ids) < vocab_size))
            and (
                not row.logprobs
                if request.params.logprobs is None
                else _has_its_logprobs(request.params.logprobs, row, vocab_size)
            )
        )
    if not fits:
        raise ProtocolError(
            f"row {row.row_id}: base_len {row.base_len}, {len(row.token_ids)} tokens, "
            f"{row.num_accepted_tokens} of {row.num_draft_tokens} drafts accepted, "
            f"but the committed length is {request.num_tokens} ({request.phase.value})"
        )


def _has_its_logprobs(wanted: int, row: RowResult, vocab_size: int) -> bool:
    """Whether there is one entry per token, of that token, with at most `wanted` others."""
    return tuple(entry.token_id for entry in row.logprobs) == row.token_ids and all(
        len(entry.top) <= wanted and all(0 <= token_id < vocab_size for token_id, _ in entry.top)
        for entry in row.logprobs
    )
