"""Keeps recent steps of both devices, for pictures and benchmarks, in a ring. Pure."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from minedraft.admin import Span

if TYPE_CHECKING:
    from minedraft.plans import DraftPlan, DraftResult, VerifyPlan, VerifyResult

MAX_SPANS = 100_000


class Timeline:
    """Spans in the order in which they were reported."""

    def __init__(self, max_spans: int = MAX_SPANS) -> None:
        self._spans: deque[Span] = deque(maxlen=max_spans)
        self._prefill_rows: dict[tuple[str, int], tuple[int, int]] = {}
        """By lane and step, of plans in flight: rows that feed a prompt, and the draft source."""

    def planned(self, draft: DraftPlan | None, verify: VerifyPlan) -> None:
        """Record how many rows of a step feed a prompt; results lack that.

        A draft plan without a verify step warms a drafter up, and that is not recorded.
        """
        if draft is not None and draft.rows and verify.rows:
            rows = sum(row.num_draft_tokens == 0 for row in draft.rows)
            self._prefill_rows["draft", draft.step_id] = rows, draft.epoch
        if verify.rows:
            rows = sum(row.num_feed > 1 for row in verify.rows)
            self._prefill_rows["verify", verify.step_id] = rows, verify.source

    def drafted(self, result: DraftResult) -> None:
        """Record a draft step."""
        self._spans.append(
            Span(
                lane="draft",
                batch=result.batch,
                step_id=result.step_id,
                timing=result.timing,
                num_rows=result.num_rows,
                num_tokens=result.num_draft_tokens,
                num_prefill_rows=self._take("draft", result.step_id),
            )
        )

    def verified(self, result: VerifyResult) -> None:
        """Record a verify step."""
        self._spans.append(
            Span(
                lane="verify",
                batch=result.batch,
                step_id=result.step_id,
                timing=result.timing,
                num_rows=len(result.rows),
                num_tokens=sum(len(row.token_ids) for row in result.rows),
                num_draft_tokens=sum(row.num_draft_tokens for row in result.rows),
                num_accepted_tokens=sum(row.num_accepted_tokens for row in result.rows),
                num_prefill_rows=self._take("verify", result.step_id),
            )
        )

    def forget_plans(self) -> None:
        """Steps in flight will not report: the verifier was lost."""
        self._prefill_rows.clear()

    def forget_drafts(self, source: int) -> None:
        """Draft steps in flight of this source will not report: it is over."""
        lost = [
            key
            for key, (_, of_source) in self._prefill_rows.items()
            if key[0] == "draft" and of_source == source
        ]
        for key in lost:
            del self._prefill_rows[key]

    def spans(self, *, max_spans: int = 0, since_unix_ns: int = 0) -> tuple[Span, ...]:
        """Return spans that began after a time, the newest `max_spans` (0: all), oldest first."""
        found = tuple(span for span in self._spans if span.start_ns > since_unix_ns)
        return found[-max_spans:] if max_spans else found

    def recent(self, max_spans: int) -> tuple[Span, ...]:
        """Return the newest spans, newest first, without a look at all of them."""
        return tuple(islice(reversed(self._spans), max_spans))

    def _take(self, lane: str, step_id: int) -> int:
        rows, _ = self._prefill_rows.pop((lane, step_id), (0, 0))
        return rows
