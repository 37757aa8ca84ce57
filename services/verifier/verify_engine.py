"""Runs one verify step on the device: one forward pass, then one acceptance decision.

Owns the rows' histories and block tables; the coordinator owns the truth, so every row of a plan
says the committed length it starts from and is brought to it first. A step is repeatable. A row for
which the target has no numbers ends with an error, not with a token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minedraft.errors import ProtocolError
from minedraft.model.batch import RowInput, RowsError
from minedraft.model.sampling import SamplingRow
from minedraft.plans import RowResult, VerifyResult
from minedraft.services.verifier.acceptance import AcceptItem, Outcome, accept
from minedraft.services.verifier.ngram import NgramDrafts
from minedraft.services.verifier.selected import num_verified
from minedraft.types import RowError
from minedraft.worker.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from minedraft.model.runner import ModelRunner
    from minedraft.packets.packet import DraftedRow, DraftPacket
    from minedraft.plans import VerifyPlan, VerifyRow
    from minedraft.types import Acceptance, RowId


@dataclass(slots=True)
class _Row:
    """An open row."""

    sampling: SamplingRow
    block_ids: list[int] = field(default_factory=list)
    ngrams: NgramDrafts | None = None
    """Made when drafts are missing first."""

    def committed(self, start: int, end: int) -> list[int]:
        """Committed tokens of positions [start, end)."""
        num_prompt = len(self.sampling.prompt_token_ids)
        if start >= num_prompt:
            return self.sampling.output_token_ids[start - num_prompt : end - num_prompt]
        tokens = self.sampling.prompt_token_ids[start:end]
        return tokens + self.sampling.output_token_ids[: max(end - num_prompt, 0)]

    def draft(self, most: int) -> tuple[int, ...]:
        """Draft from its own tokens."""
        if self.ngrams is None:
            self.ngrams = NgramDrafts()
        return tuple(self.ngrams.propose(self.committed, self.sampling.num_tokens, most))


class VerifyEngine:
    """The verifier's device work. Every method runs on the device thread.

    Args:
        runner: The target.
        rule: How drafts are accepted at temperature > 0.
    """

    def __init__(self, runner: ModelRunner, rule: Acceptance) -> None:
        self._runner = runner
        self._rule = rule
        self._rows: dict[RowId, _Row] = {}
        self._last: dict[int, VerifyResult] = {}
        """By batch: steps of one batch come in order, those of different batches in any."""
        self._watch = Stopwatch()

    @property
    def num_rows(self) -> int:
        """Open rows."""
        return len(self._rows)

    def reset(self) -> None:
        """Forget all rows, and which steps came last: another coordinator counts its own."""
        self._rows.clear()
        self._last.clear()

    def step(
        self, plan: VerifyPlan, packet: DraftPacket | None, *, plan_ns: int, drafts_ns: int | None
    ) -> VerifyResult | None:
        """Run one plan.

        Args:
            plan: What to do.
            packet: Its drafts, as they came over the link; None if they did not come.
            plan_ns: When the plan arrived (perf_counter).
            drafts_ns: When the drafts arrived; None if nobody had to wait for them.

        Returns:
            What became of the rows; None if the plan has none, or is older than the last one of its
            batch. The last one again has the same answer and is not run again: its drafts are gone,
            and what they left in the cache is what the next plan goes on from.

        Raises:
            ProtocolError: the plan does not fit what this worker holds.
        """
        last = self._last.get(plan.batch)
        if plan.rows and last is not None and plan.step_id <= last.step_id:
            return last if plan.step_id == last.step_id else None
        result = self._run(plan, packet, plan_ns, drafts_ns)
        if result is not None:
            self._last[plan.batch] = result
        return result

    def _run(
        self, plan: VerifyPlan, packet: DraftPacket | None, plan_ns: int, drafts_ns: int | None
    ) -> VerifyResult | None:
        for row_id in plan.closes:
            self._rows.pop(row_id, None)
        for opened in plan.opens:
            self._rows[opened.row_id] = _Row(
                SamplingRow(opened.params, opened.prompt_token_ids, opened.output_token_ids)
            )
        if not plan.rows:
            return None
        self._watch.start()
        self._runner.widen(is_wide=plan.is_wide)
        drafted = {row.row_id: row for row in packet.rows} if packet is not None else {}
        rows = [self._bring_up(planned) for planned in plan.rows]
        usable = [_usable_drafts(each, drafted.get(int(each.row_id))) for each in plan.rows]
        num_stale = sum(
            drafts is None and planned.num_draft_tokens > 0
            for planned, drafts in zip(plan.rows, usable, strict=True)
        )
        params = [row.sampling.params for row in rows]
        counts = num_verified(plan.rows, usable, params, plan.selection, self._rule)
        inputs: list[RowInput] = []
        items: list[AcceptItem] = []
        own: dict[int, NgramDrafts] = {}
        for planned, row, drafts, count in zip(plan.rows, rows, usable, counts, strict=True):
            feed_end = planned.num_computed + planned.num_feed
            token_ids = row.committed(planned.num_computed, feed_end)
            is_sampled = feed_end == planned.base_len
            ids = drafts.token_ids[:count] if drafts is not None else ()
            # A selection is a budget of all rows together, made before anybody knew of these.
            if not ids and planned.num_ngram_tokens and plan.selection is None:
                ids = row.draft(planned.num_ngram_tokens)
                if ids and row.ngrams is not None:
                    own[len(inputs)] = row.ngrams
            inputs.append(
                RowInput(
                    token_ids=[*token_ids, *ids],
                    start=planned.num_computed,
                    block_ids=row.block_ids,
                    num_logits=len(ids) + 1 if is_sampled else 0,
                )
            )
            if is_sampled:
                q = drafts.q[: len(ids)] if drafts is not None and drafts.q else None
                items.append(AcceptItem(row=row.sampling, draft_token_ids=ids, q=q))
        with self._watch.measure("forward"):
            try:
                logits = self._runner.forward(inputs)
            except RowsError as err:
                raise ProtocolError(f"step {plan.step_id}: {err}") from err
        with self._watch.measure("sample"):
            outcomes = accept(logits, items, self._rule, self._runner.draw_kernel)
        results = tuple(self._results(plan, inputs, items, outcomes, own))
        timing = self._watch.stop(plan_ns=plan_ns, drafts_ns=drafts_ns)
        return VerifyResult(plan.step_id, plan.batch, results, timing, num_stale)

    def _bring_up(self, planned: VerifyRow) -> _Row:
        """Bring a row's history and block table to what the plan says."""
        row = self._rows.get(planned.row_id)
        if row is None:
            raise ProtocolError(f"verify plan names row {planned.row_id}, which is not open")
        row.sampling.set_committed(planned.base_len, planned.new_token_ids)
        if planned.block_offset > len(row.block_ids):
            raise ProtocolError(
                f"row {planned.row_id}: block_offset {planned.block_offset}, "
                f"the table has {len(row.block_ids)} blocks"
            )
        row.block_ids[planned.block_offset :] = planned.new_block_ids
        feed_end = planned.num_computed + planned.num_feed
        num_drafts = max(planned.num_draft_tokens, planned.num_ngram_tokens)
        capacity = len(row.block_ids) * self._runner.block_size
        if (
            planned.num_feed < 1
            or feed_end > planned.base_len
            or feed_end + num_drafts > capacity
            or (num_drafts and feed_end != planned.base_len)
            or any(not 0 <= block < self._runner.num_blocks for block in planned.new_block_ids)
        ):
            raise ProtocolError(
                f"row {planned.row_id}: feed [{planned.num_computed}, {feed_end}) and "
                f"{num_drafts} drafts of base_len {planned.base_len} "
                f"do not fit {capacity} positions"
            )
        return row

    def _results(
        self,
        plan: VerifyPlan,
        inputs: Sequence[RowInput],
        items: Sequence[AcceptItem],
        outcomes: Sequence[Outcome],
        own: Mapping[int, NgramDrafts],
    ) -> list[RowResult]:
        decided = iter(zip(items, outcomes, strict=True))
        rows = []
        for index, (planned, fed) in enumerate(zip(plan.rows, inputs, strict=True)):
            if fed.num_logits == 0:
                error = RowError.NON_FINITE if index in self._runner.broken else None
                rows.append(RowResult(planned.row_id, planned.base_len, (), error=error))
                continue
            item, outcome = next(decided)
            if outcome.is_broken:
                error = RowError.NON_FINITE
                rows.append(RowResult(planned.row_id, planned.base_len, (), error=error))
                continue
            if index in own:
                own[index].observe(len(item.draft_token_ids), outcome.num_accepted)
            rows.append(
                RowResult(
                    row_id=planned.row_id,
                    base_len=planned.base_len,
                    token_ids=tuple(outcome.token_ids),
                    num_draft_tokens=len(item.draft_token_ids),
                    num_accepted_tokens=outcome.num_accepted,
                    logprobs=tuple(outcome.logprobs or ()),
                    is_ngram=index in own,
                )
            )
        return rows


def _usable_drafts(planned: VerifyRow, drafted: DraftedRow | None) -> DraftedRow | None:
    """Drafts that were planned and continue exactly the committed length; None: there are none."""
    is_usable = planned.num_draft_tokens and drafted and drafted.base_len == planned.base_len
    return drafted if is_usable else None
