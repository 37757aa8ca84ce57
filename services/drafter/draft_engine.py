"""Runs one draft step on the device: catch up, let the proposer draft, send the drafts.

Everything it holds is a cache of what the coordinator says; a step is repeatable and may be lost.
The proposer decides which tokens to draft (`proposer`, `kinds`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.model.sampling_row import SamplingRow
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.plans import DraftResult, DraftRowResult
from minedraft.services.drafter.kinds import make_proposer
from minedraft.services.drafter.proposer import DraftContext, Drafting
from minedraft.services.drafter.rows import DrafterRows, Row
from minedraft.types import DebugOptions
from minedraft.worker.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from minedraft.model.runner import ModelRunner
    from minedraft.plans import DraftPlan


class DraftEngine:
    """The drafter's device work. Every method runs on the device thread.

    Args:
        runner: The draft model.
        kind: Who proposes; one of `KINDS`.
        max_catch_up_tokens: Most committed tokens fed in one step.
        q_width: (id, probability) pairs to send with each draft; 0: ids only.
    """

    def __init__(
        self,
        runner: ModelRunner,
        kind: str,
        *,
        max_catch_up_tokens: int = 2048,
        q_width: int = 0,
    ) -> None:
        self._max_catch_up = max_catch_up_tokens
        self._rows = DrafterRows(runner.num_blocks, runner.block_size)
        self._watch = Stopwatch()
        self._q_width = q_width
        self._proposer = make_proposer(kind, DraftContext(runner, self._watch, q_width))

    @property
    def rows(self) -> DrafterRows:
        """Open rows. Read only."""
        return self._rows

    def step(
        self, plan: DraftPlan, *, plan_ns: int, send: Callable[[DraftPacket], None]
    ) -> DraftResult | None:
        """Run one plan and send its drafts.

        Args:
            plan: What to do.
            plan_ns: When it arrived (perf_counter).
            send: Puts a packet on the link; must not block.

        Returns:
            What was drafted; None if the plan has no rows.

        Raises:
            ProtocolError: the plan does not fit what this worker holds.
        """
        for row_id in plan.closes:
            self._rows.close(row_id)
        for opened in plan.opens:
            sampling = SamplingRow(opened.params, opened.prompt_token_ids, opened.output_token_ids)
            self._rows.open(opened.row_id, Row(sampling, opened.debug or DebugOptions()))
        if not plan.rows:
            return None
        self._watch.start()
        batch = [Drafting(planned, self._rows.bring_up(planned)) for planned in plan.rows]
        able = self._catch_up(batch) if self._proposer.reads_kv else batch
        if able:
            self._proposer.propose(able)
        for item in batch:
            if item.is_hopeless:
                self._rows.give_up(item.row)
        asked = [item for item in batch if item.planned.num_draft_tokens]
        if asked and not plan.is_trial:
            rows = tuple(self._drafted(item) for item in asked)
            send(DraftPacket(plan.epoch, plan.step_id, plan.batch, rows))
        timing = self._watch.stop(plan_ns=plan_ns, drafts_ns=None)
        return DraftResult(
            step_id=plan.step_id,
            batch=plan.batch,
            num_draft_tokens=sum(len(item.drafts) for item in batch),
            num_rows=sum(bool(item.drafts) for item in batch),
            timing=timing,
            epoch=plan.epoch,
            num_broken=sum(item.is_broken for item in batch),
            rows=tuple(
                DraftRowResult(item.planned.row_id, item.planned.base_len, item.is_behind)
                for item in batch
                if not item.drafts
            ),
        )

    def _catch_up(self, batch: Sequence[Drafting]) -> list[Drafting]:
        """Decide which committed tokens that lack KV are fed, within the budget.

        Rows that need little come first, so that one long prompt does not stop the others.

        Returns:
            Rows that are fed, and have blocks for it and for their drafts.
        """
        budget = self._max_catch_up
        fed: list[Drafting] = []
        for item in batch:
            item.is_broken = item.row.is_broken and item.planned.num_draft_tokens > 0
        missing = [(item, item.row.missing()) for item in batch if not item.row.is_broken]
        for item, tokens in sorted(missing, key=lambda pair: len(pair[1])):
            k = item.planned.num_draft_tokens
            due = tokens[:budget]
            is_complete = len(due) == len(tokens)
            item.is_behind = not is_complete
            if not due:
                continue
            # The last draft is not fed.
            num_positions = len(item.row.cached) + len(due) + (max(k - 1, 0) if is_complete else 0)
            if not self._rows.reserve(item.row, num_positions):
                item.is_behind = False  # more steps would not help it: there is no room
                continue
            budget -= len(due)
            item.due, item.is_ready = due, is_complete and k > 0
            fed.append(item)
        return fed

    def _drafted(self, item: Drafting) -> DraftedRow:
        return DraftedRow(
            row_id=int(item.planned.row_id),
            base_len=item.planned.base_len,
            token_ids=tuple(item.drafts),
            q=tuple(item.q) if self._q_width else (),
        )
