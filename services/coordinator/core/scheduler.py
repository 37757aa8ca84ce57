"""What one batch does in its next step. Pure.

A step feeds, for each member, the committed tokens the verifier lacks and then its drafts. So
decoding, prefill in chunks and re-prefill after preemption are one thing. Decoding rows come
first; prefill shares what is left of the token budget, oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minedraft.plans import DraftRow, OpenRow, VerifyRow
from minedraft.services.coordinator.core.request import Event, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from minedraft.services.coordinator.core.request import Request


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a step."""

    num_draft_tokens: int
    """k of the service; 0: no speculation."""
    prefill_budget_tokens: int
    """Most prompt tokens fed in one step, all rows together; >= 1."""
    max_model_len: int
    """Positions the target has."""
    drafter_max_len: int
    """Positions the drafter has; 0: there is no drafter."""
    drafter_vocab_size: int = 2**32
    """Ids that the drafter knows are below this."""
    epoch: int = 0
    """Of the link to the drafter that drafts for this batch."""


@dataclass(slots=True)
class StepRows:
    """Rows of one step, for both workers."""

    draft_rows: list[DraftRow] = field(default_factory=list)
    draft_opens: list[OpenRow] = field(default_factory=list)
    verify_rows: list[VerifyRow] = field(default_factory=list)
    verify_opens: list[OpenRow] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    """Owners of `verify_rows`, in order."""


def num_draft_tokens(request: Request, limits: Limits) -> int:
    """Return k for one decoding request: never past its end, the context or the drafter's context.

    A step that starts from L committed tokens emits at most k + 1, so L + k + 1 <= max_len; the
    drafter feeds positions up to L + k - 2 and needs them all.
    """
    if request.max_token_id >= limits.drafter_vocab_size:
        return 0
    wanted = request.speculation.num_draft_tokens
    k = limits.num_draft_tokens if wanted is None else min(wanted, limits.num_draft_tokens)
    end = min(request.max_len, limits.max_model_len)
    return max(min(k, end - request.num_tokens - 1, limits.drafter_max_len - request.num_tokens), 0)


def schedule(
    members: Iterable[Request], limits: Limits, allocate: Callable[[Request, int], bool]
) -> StepRows:
    """Build one step of one batch and mark its requests.

    Args:
        members: The batch, oldest member first; none has a step in flight.
        limits: What bounds the step.
        allocate: Gives a request blocks for that many positions, preempting others if it must;
            False: it has to sit this step out (or was preempted itself).

    Returns:
        Rows for both workers; empty if nobody can move.
    """
    step = StepRows()
    ordered = list(members)
    for request in [r for r in ordered if r.phase is Phase.READY]:
        if request.phase is not Phase.READY:  # preempted for an older one just now
            continue
        k = num_draft_tokens(request, limits)
        if not allocate(request, request.num_tokens + k):
            continue
        request.advance(Event.DRAFT if k else Event.VERIFY)
        _add(step, request, num_feed=request.num_tokens - request.num_computed, k=k)
        if k:
            _add_draft(step, request, k, limits.epoch)
    budget = limits.prefill_budget_tokens
    for request in [r for r in ordered if r.phase is Phase.PREFILLING]:
        num_feed = min(budget, request.num_tokens - request.num_computed)
        if num_feed <= 0:
            break
        if request.phase is not Phase.PREFILLING or not allocate(
            request, request.num_computed + num_feed
        ):
            continue
        budget -= num_feed
        _add(step, request, num_feed=num_feed, k=0)
        if wants_drafts(request, limits) and limits.epoch not in request.drafter_lens:
            # The drafter's prefill runs beside the verifier's.
            _add_draft(step, request, 0, limits.epoch)
    return step


def warm_up(
    requests: Iterable[Request], limits: Limits, *, again: bool
) -> tuple[tuple[DraftRow, ...], tuple[OpenRow, ...]]:
    """Rows that bring a drafter that does not draft yet up to the committed lengths.

    Args:
        requests: Live ones that are in a batch.
        limits: Of the drafter.
        again: Also those it was told of: it did not get to all of them.
    """
    step = StepRows()
    for request in requests:
        is_behind = request.drafter_lens.get(limits.epoch, 0) < request.num_tokens
        if wants_drafts(request, limits) and (is_behind or again):
            _add_draft(step, request, 0, limits.epoch)
    return tuple(step.draft_rows), tuple(step.draft_opens)


def wants_drafts(request: Request, limits: Limits) -> bool:
    """Whether a drafter should know this request at all."""
    wanted = request.speculation.num_draft_tokens
    return (
        limits.num_draft_tokens > 0
        and wanted != 0
        and request.num_tokens < limits.drafter_max_len
        and request.max_token_id < limits.drafter_vocab_size
    )


def _open(request: Request) -> OpenRow:
    return OpenRow(
        row_id=request.row_id,
        prompt_token_ids=request.prompt_token_ids,
        output_token_ids=tuple(request.output_token_ids),
        params=request.params,
        debug=request.debug,
    )


def _add(step: StepRows, request: Request, *, num_feed: int, k: int) -> None:
    if request.verifier_len == 0:
        step.verify_opens.append(_open(request))
        request.verifier_len = request.num_tokens
    step.verify_rows.append(
        VerifyRow(
            row_id=request.row_id,
            base_len=request.num_tokens,
            new_token_ids=request.tail(request.verifier_len),
            num_computed=request.num_computed,
            num_feed=num_feed,
            num_draft_tokens=k,
            new_block_ids=tuple(request.block_ids[request.num_blocks_sent :]),
            block_offset=request.num_blocks_sent,
        )
    )
    request.verifier_len = request.num_tokens
    request.num_blocks_sent = len(request.block_ids)
    if request.phase is Phase.PREFILLING:
        request.num_computed += num_feed  # a result with tokens sets it anew
    step.requests.append(request)


def _add_draft(step: StepRows, request: Request, k: int, epoch: int) -> None:
    if epoch not in request.drafter_lens:
        step.draft_opens.append(_open(request))
        request.drafter_lens[epoch] = request.num_tokens
    step.draft_rows.append(
        DraftRow(
            row_id=request.row_id,
            base_len=request.num_tokens,
            new_token_ids=request.tail(request.drafter_lens[epoch]),
            num_draft_tokens=k,
        )
    )
    request.drafter_lens[epoch] = request.num_tokens
