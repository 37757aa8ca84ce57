"""Writes the rows for both workers, from requests and decisions. Pure.

Writing a row marks the request: what the worker knows of it from now on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minedraft.plans import DraftRow, OpenRow, Score, Stop, VerifyRow
from minedraft.selection import Selection
from minedraft.services.coordinator.core.request import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from minedraft.plans import DraftResult
    from minedraft.services.coordinator.core.decision import Decision
    from minedraft.services.coordinator.core.estimator import Estimator
    from minedraft.services.coordinator.core.request import Request
    from minedraft.services.coordinator.core.step_view import Limits
    from minedraft.types import RowId

MOST_LAG: Final = 16
"""Committed tokens that the drafter of a row may lack while the row does not draft."""
_new_tuple = tuple.__new__
"""Makes a named tuple at half the cost of calling its class."""


@dataclass(slots=True)
class StepRows:
    """Rows of one step, for both workers."""

    draft_rows: list[DraftRow] = field(default_factory=list)
    draft_opens: list[OpenRow] = field(default_factory=list)
    verify_rows: list[VerifyRow] = field(default_factory=list)
    verify_opens: list[OpenRow] = field(default_factory=list)
    requests: dict[RowId, Request] = field(default_factory=dict)
    """Owners of `verify_rows`, in order."""
    num_draft_tokens: dict[RowId, int] = field(default_factory=dict)
    """k of `verify_rows`."""
    num_ngram_tokens: dict[RowId, int] = field(default_factory=dict)
    """Most drafts of the verifier's own, of rows that may have any."""
    num_scheduled_tokens: int = 0
    """Committed tokens that `verify_rows` feed."""
    num_behind: int = 0
    """Rows that decode without drafts because their source has not caught up with them."""
    is_feeding: bool = False
    """Whether the drafter is fed more of a row than what its last step committed."""
    max_catch_up_tokens: int = 0
    """Most committed tokens that the drafter feeds; 0: as its own setting."""
    context: int = 0
    """Committed tokens of `verify_rows` that are in the KV cache then, those it feeds included."""
    score: Score = Score.NONE
    """What the drafter says of each draft."""
    stop: Stop | None = None
    """When a row stops drafting; None: at its k."""
    selection: Selection | None = None
    """Which drafts are verified; None: all."""

    def choose_by(self, decision: Decision, estimator: Estimator) -> None:
        """Have drafts scored, and what is verified chosen, as a policy decided."""
        if not self.draft_rows:
            return
        self.score, curves = decision.score, decision.curves
        if decision.budget is not None:
            offsets = tuple(map(estimator.offset, self.requests.values())) if curves.slopes else ()
            self.selection = Selection(decision.budget, 0, curves, offsets)
        if decision.stop_below > 0:
            owners = (self.requests[row.row_id] for row in self.draft_rows)
            offsets = tuple(map(estimator.offset, owners)) if curves.slopes else ()
            self.stop = Stop(decision.stop_below, curves, offsets)

    def add_decoding(
        self,
        decodes: Iterable[tuple[Request, int]],
        source: int,
        ngrams: Mapping[RowId, int] | None = None,
    ) -> None:
        """Add rows of requests that decode, each with its k, and advance their phases.

        With `ngrams` the verifier may draft for rows whose drafts do not come: as many as were
        asked for, or as this says of rows without a k.

        Does what `add_verify` and `add_draft` do, in one loop: this is most of planning.
        """
        verify_rows, draft_rows = self.verify_rows, self.draft_rows
        num_scheduled = context = 0
        for request, k in decodes:
            row_id, num_tokens = request.row_id, request.num_tokens
            start, num_sent, block_ids = (
                request.verifier_len,
                request.num_blocks_sent,
                request.block_ids,
            )
            num_computed, num_blocks = request.num_computed, len(block_ids)
            if start == 0:
                self.verify_opens.append(_open(request))
                start = num_tokens
            tail = request.tail(start)
            num_feed = num_tokens - num_computed
            new_block_ids = tuple(block_ids[num_sent:]) if num_sent < num_blocks else ()
            num_own = 0
            if ngrams is not None and (num_own := k or ngrams.get(row_id, 0)):
                self.num_ngram_tokens[row_id] = num_own
            fields = (
                row_id,
                num_tokens,
                tail,
                num_computed,
                num_feed,
                k,
                new_block_ids,
                num_sent,
                num_own,
            )
            verify_rows.append(_new_tuple(VerifyRow, fields))
            request.verifier_len, request.num_blocks_sent = num_tokens, num_blocks
            self.requests[row_id] = request
            self.num_draft_tokens[row_id] = k
            num_scheduled += num_feed
            context += num_tokens
            if not k:
                request.advance(Event.VERIFY)
                continue
            request.advance(Event.DRAFT)
            lens = request.drafter_lens
            known = lens.get(source)
            if known is None:
                self.add_draft(request, k, source)
                continue
            if known != start:
                tail = request.tail(known)
            draft_rows.append(_new_tuple(DraftRow, (row_id, num_tokens, tail, k)))
            lens[source] = num_tokens
        self.num_scheduled_tokens += num_scheduled
        self.context += context

    def add_verify(self, request: Request, num_feed: int, k: int) -> None:
        """Add a row for the verifier: `num_feed` committed tokens, then at most `k` drafts."""
        num_tokens, row_id = request.num_tokens, request.row_id
        if request.verifier_len == 0:
            self.verify_opens.append(_open(request))
            request.verifier_len = num_tokens
        num_sent, num_blocks = request.num_blocks_sent, len(request.block_ids)
        self.verify_rows.append(
            VerifyRow(
                row_id,
                num_tokens,
                request.tail(request.verifier_len),
                request.num_computed,
                num_feed,
                k,
                tuple(request.block_ids[num_sent:]) if num_sent < num_blocks else (),
                num_sent,
            )
        )
        request.verifier_len = num_tokens
        request.num_blocks_sent = num_blocks
        self.requests[row_id] = request
        self.num_draft_tokens[row_id] = k
        self.num_scheduled_tokens += num_feed
        self.context += request.num_computed + num_feed

    def add_draft(self, request: Request, k: int, source: int) -> None:
        """Add a row for the drafter: the tokens that it lacks, then `k` drafts."""
        num_tokens = request.num_tokens
        known = request.drafter_lens.get(source)
        if known is None:
            self.draft_opens.append(_open(request, request.cache_salt))
            known = num_tokens
            self.is_feeding = True
        self.draft_rows.append(DraftRow(request.row_id, num_tokens, request.tail(known), k))
        request.drafter_lens[source] = num_tokens

    def add_catch_up(self, request: Request, source: int) -> None:
        """Add a row that feeds a drafter which is behind, if none is out: it answers to each."""
        if not request.behind[source]:
            self.add_draft(request, 0, source)
            request.behind[source] = self.is_feeding = True


def lags(request: Request, source: int) -> bool:
    """Whether a drafter that a row has not drafted with for some steps should be fed what it lacks.

    Else it would be fed all of that when the row drafts again, while others wait.
    """
    known = request.drafter_lens.get(source)
    return known is not None and request.num_tokens - known >= MOST_LAG


def note_behind(requests: Iterable[Request], result: DraftResult) -> None:
    """Note what a drafter says of rows without drafts: whether it has caught up with them.

    Args:
        requests: Live ones.
        result: Answer to a plan; what it says of rows that ended since is ignored.
    """
    said = {row.row_id: row.is_behind for row in result.rows}
    for request in requests:
        is_behind = said.get(request.row_id)
        if is_behind is None or result.epoch not in request.drafter_lens:
            continue
        if is_behind:
            request.behind[result.epoch] = False
        else:
            request.behind.pop(result.epoch, None)


def warm_up(
    requests: Iterable[Request], limits: Limits, *, again: bool
) -> tuple[tuple[DraftRow, ...], tuple[OpenRow, ...]]:
    """Rows that bring a drafter up to the committed lengths while no step has drafts of it.

    Args:
        requests: Live ones that are in a batch.
        limits: Of the drafter.
        again: Also those it was told of: it did not get to all of them.
    """
    step = StepRows()
    for request in requests:
        lacks_some = request.drafter_lens.get(limits.source, 0) < request.num_tokens
        if wants_drafts(request, limits) and (lacks_some or again):
            step.add_draft(request, 0, limits.source)
            if limits.source in request.behind:
                request.behind[limits.source] = True
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


def _open(request: Request, cache_salt: str = "") -> OpenRow:
    return OpenRow(
        row_id=request.row_id,
        prompt_token_ids=request.prompt_token_ids,
        output_token_ids=tuple(request.output_token_ids),
        params=request.params,
        debug=request.debug,
        cache_salt=cache_salt,
    )
