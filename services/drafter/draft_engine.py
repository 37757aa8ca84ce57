"""Runs one draft step on the device: catch up, let the proposer draft, send the drafts.

Between steps it may draw ahead of the next one (`run_ahead`), one forward pass per call.

Everything it holds is a cache of what the coordinator says; a step is repeatable and may be lost.
The proposer decides which tokens to draft (`proposer`, `kinds`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.model.sampling_row import SamplingRow
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.plans import DraftResult, DraftRowResult, Score
from minedraft.services.drafter.kinds import make_proposer
from minedraft.services.drafter.labels import Outcome
from minedraft.services.drafter.proposer import DraftContext, Drafting
from minedraft.services.drafter.rows import DrafterRows, Row
from minedraft.services.drafter.run_ahead import RunAhead
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
        prefix_cache: Whether rows that begin alike share KV blocks.
        run_ahead: Most tokens drawn ahead per row; 0: none; None: `auto`.
    """

    def __init__(
        self,
        runner: ModelRunner,
        kind: str,
        *,
        max_catch_up_tokens: int = 2048,
        q_width: int = 0,
        prefix_cache: bool = True,
        run_ahead: int | None = 0,
    ) -> None:
        self._max_catch_up = max_catch_up_tokens
        self._rows = DrafterRows(
            runner.num_blocks,
            runner.block_size,
            fingerprint=runner.info.weights_fingerprint,
            prefix_cache=prefix_cache,
        )
        self._watch = Stopwatch()
        self._q_width = q_width
        self._proposer = make_proposer(kind, DraftContext(runner, self._watch, q_width))
        self._ahead = RunAhead(
            self._rows, self._proposer, limit=run_ahead, max_len=runner.info.max_model_len
        )

    @property
    def rows(self) -> DrafterRows:
        """Open rows. Read only."""
        return self._rows

    @property
    def ahead(self) -> RunAhead:
        """What is drawn ahead. Read only."""
        return self._ahead

    def run_ahead(self) -> None:
        """Draw ahead of the next plan: one forward pass, if there is something to draw.

        Raises:
            StateError: as of the runner; nothing more is drawn ahead of these rows.
        """
        self._ahead.go_on()
        self._watch.worked()

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
            row = Row(sampling, opened.debug or DebugOptions(), salt=opened.cache_salt)
            self._rows.open(opened.row_id, row)
        self._ahead.forget_closed()
        if not plan.rows:
            if not plan.may_run_ahead:
                self._ahead.stop()
            return None
        self._ahead.begin(plan_ns)
        self._watch.start()
        self._rows.shares = not plan.is_trial
        batch = self._bring_up(plan)
        outcomes = [self._outcome(item) for item in batch]
        budget = min(self._max_catch_up, plan.max_catch_up_tokens or self._max_catch_up)
        able = self._catch_up(batch, budget) if self._proposer.reads_kv else batch
        num_passes = self._proposer.propose(able) if able else 0
        for item in batch:
            if item.is_hopeless:
                self._rows.give_up(item.row)
            else:
                self._rows.publish(item.row)
            if item.drafts and self._is_judged(item):
                item.row.labels.add(item.planned.base_len, item.drafts)
        asked = [item for item in batch if item.planned.num_draft_tokens]
        if asked and not plan.is_trial:
            rows = tuple(self._drafted(item) for item in asked)
            send(DraftPacket(plan.epoch, plan.step_id, plan.batch, rows))
        timing = self._watch.stop(plan_ns=plan_ns, drafts_ns=None)
        result = DraftResult(
            step_id=plan.step_id,
            batch=plan.batch,
            num_draft_tokens=sum(len(item.drafts) for item in batch),
            num_rows=sum(bool(item.drafts) for item in batch),
            timing=timing,
            epoch=plan.epoch,
            num_broken=sum(item.is_broken for item in batch),
            rows=tuple(
                DraftRowResult(
                    item.planned.row_id,
                    item.planned.base_len,
                    item.is_behind,
                    tuple(item.scores),
                    *outcome,
                )
                for item, outcome in zip(batch, outcomes, strict=True)
                if not item.drafts or plan.score is not Score.NONE
            ),
            num_catch_up_tokens=sum(len(item.due) for item in batch),
            num_ahead_tokens=sum(item.num_reused for item in batch),
        )
        self._ahead.keep(able, num_passes, may_run_ahead=plan.may_run_ahead)
        return result

    def _bring_up(self, plan: DraftPlan) -> list[Drafting]:
        stop = None if plan.score is Score.NONE else plan.stop
        offsets = stop.offsets if stop is not None and stop.offsets else (0.0,) * len(plan.rows)
        return [
            Drafting(
                planned, self._rows.bring_up(planned), score=plan.score, stop=stop, offset=offset
            )
            for planned, offset in zip(plan.rows, offsets, strict=True)
        ]

    def _is_judged(self, item: Drafting) -> bool:
        """Whether committed tokens say what is right: by rejection a sampled row takes others."""
        is_coupled = self._q_width == 0 or item.row.sampling.params.is_greedy
        return item.score is not Score.NONE and is_coupled

    def _outcome(self, item: Drafting) -> Outcome:
        return item.row.judge() if self._is_judged(item) else Outcome()

    def _catch_up(self, batch: Sequence[Drafting], budget: int) -> list[Drafting]:
        """Decide which committed tokens that lack KV are fed, within the budget.

        Rows that need little come first, so that one long prompt does not stop the others. Of rows
        that only catch up and lack the same block next, one feeds it; the others find it in their
        next step.

        Returns:
            Rows that are fed, and have blocks for it and for their drafts.
        """
        fed: list[Drafting] = []
        for item in batch:
            item.is_broken = item.row.is_broken and item.planned.num_draft_tokens > 0
        fed_keys: set[bytes] = set()
        for item, tokens, key in self._missing(batch):
            k = item.planned.num_draft_tokens
            if key in fed_keys and k == 0:
                item.is_behind = True
                continue
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
            if key is not None and len(due) >= self._rows.block_size:
                fed_keys.add(key)
            item.due, item.is_ready = due, is_complete and k > 0
            self._ahead.resume(item)
            fed.append(item)
        return fed

    def _missing(self, batch: Sequence[Drafting]) -> list[tuple[Drafting, list[int], bytes | None]]:
        """Rows, each with what it lacks and the key of its next full block; the shortest first.

        Blocks that others have published are theirs by now.
        """
        found = []
        for item in batch:
            if item.row.is_broken:
                continue
            tokens = item.row.missing()
            num_cached = len(item.row.cached)
            key = self._rows.look_up(item.row)
            if len(item.row.cached) != num_cached:
                tokens = item.row.missing()
            found.append((item, tokens, key))
        return sorted(found, key=lambda entry: len(entry[1]))

    def _drafted(self, item: Drafting) -> DraftedRow:
        return DraftedRow(
            row_id=int(item.planned.row_id),
            base_len=item.planned.base_len,
            token_ids=tuple(item.drafts),
            scores=tuple(item.scores),
            q=tuple(item.q) if self._q_width else (),
        )
