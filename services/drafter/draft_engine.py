"""One draft step on the device: bring the KV cache up, then k small steps for the whole batch.

Everything it holds is a cache of what the coordinator says; a step is repeatable and may be lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minedraft.model.batch import RowInput
from minedraft.model.noise import Stream, uniform_at
from minedraft.model.sampling import BROKEN, Position, SamplingRow, draw, draw_with_q
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.plans import DraftResult
from minedraft.services.drafter.config import DrafterKind
from minedraft.services.drafter.proposal import replacement, scripted
from minedraft.services.drafter.rows import DrafterRows, Row
from minedraft.types import DebugOptions
from minedraft.worker.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from minedraft.model.runner import ModelRunner
    from minedraft.plans import DraftPlan, DraftRow


@dataclass(slots=True)
class _Drafting:
    """One row while it is being drafted for."""

    planned: DraftRow
    row: Row
    drafts: list[int] = field(default_factory=list)
    q: list[tuple[tuple[int, ...], tuple[float, ...]]] = field(default_factory=list)
    is_behind: bool = False
    """Committed tokens wait for the next step's budget."""
    is_broken: bool = False
    """Drafts are missing because the model's logits are no distribution."""


class DraftEngine:
    """The drafter's device work. Every method runs on the device thread.

    Args:
        runner: The draft model.
        kind: What becomes of the tokens it draws.
        max_catch_up_tokens: Most committed tokens fed in one step.
        q_width: (id, probability) pairs to send with each draft; 0: ids only.
    """

    def __init__(
        self,
        runner: ModelRunner,
        kind: DrafterKind,
        *,
        max_catch_up_tokens: int = 2048,
        q_width: int = 0,
    ) -> None:
        self._runner = runner
        self._kind = kind
        self._max_catch_up = max_catch_up_tokens
        self._vocab_size = runner.info.vocab_size
        self._rows = DrafterRows(runner.num_blocks, runner.block_size)
        self._watch = Stopwatch()
        self._q_width = q_width

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
            row = Row(sampling, opened.debug or DebugOptions())
            self._rows.open(opened.row_id, row)
        if not plan.rows:
            return None
        self._watch.start()
        batch = [_Drafting(planned, self._rows.bring_up(planned)) for planned in plan.rows]
        if self._kind is DrafterKind.SCRIPTED:
            for item in batch:
                item.drafts = scripted(item.row, item.planned.num_draft_tokens)
                item.q = [((token,), (1.0,)) for token in item.drafts] if self._q_width else []
        else:
            self._draft(batch)
        asked = [item for item in batch if item.planned.num_draft_tokens]
        if asked:
            send(DraftPacket(plan.epoch, plan.step_id, plan.batch, tuple(map(_drafted, asked))))
        timing = self._watch.stop(plan_ns=plan_ns, drafts_ns=None)
        return DraftResult(
            step_id=plan.step_id,
            batch=plan.batch,
            num_draft_tokens=sum(len(item.drafts) for item in batch),
            num_rows=sum(bool(item.drafts) for item in batch),
            timing=timing,
            epoch=plan.epoch,
            num_behind=sum(item.is_behind for item in batch),
            num_broken=sum(item.is_broken for item in batch),
        )

    def _draft(self, batch: Sequence[_Drafting]) -> None:
        """Run k model steps for the batch; the first one also feeds what the KV cache lacks."""
        active = self._catch_up(batch)
        num_steps = 1
        while active:
            active = [
                item
                for item in active
                if item.planned.num_draft_tokens > num_steps and not item.is_broken
            ]
            if not active:
                return
            inputs = [
                RowInput(
                    token_ids=[item.drafts[-1]],
                    start=len(item.row.cached),
                    block_ids=item.row.block_ids,
                    num_logits=1,
                )
                for item in active
            ]
            for item in active:
                item.row.cached.append(item.drafts[-1])
            with self._watch.measure("forward"):
                logits = self._runner.forward(inputs)
            self._extend(active, logits)
            num_steps += 1

    def _catch_up(self, batch: Sequence[_Drafting]) -> list[_Drafting]:
        """Feed committed tokens that lack KV, within the budget; draw the first draft of each row.

        Rows that need little come first, so that one long prompt does not stop the others.

        Returns:
            Rows that have their first draft.
        """
        budget = self._max_catch_up
        inputs: list[RowInput] = []
        drafting: list[_Drafting] = []
        fed_items: list[_Drafting] = []
        for item in batch:
            item.is_broken = item.row.is_broken and item.planned.num_draft_tokens > 0
        missing = [(item, item.row.missing()) for item in batch if not item.row.is_broken]
        for item, tokens in sorted(missing, key=lambda pair: len(pair[1])):
            k = item.planned.num_draft_tokens
            fed = tokens[:budget]
            is_complete = len(fed) == len(tokens)
            item.is_behind = not is_complete
            num_positions = len(item.row.cached) + len(fed) + (max(k - 1, 0) if is_complete else 0)
            if not fed:
                continue
            if not self._rows.reserve(item.row, num_positions):
                item.is_behind = False  # more steps would not help it: there is no room
                continue
            budget -= len(fed)
            wants = is_complete and k > 0
            inputs.append(
                RowInput(
                    token_ids=fed,
                    start=len(item.row.cached),
                    block_ids=item.row.block_ids,
                    num_logits=1 if wants else 0,
                )
            )
            item.row.cached += fed
            item.row.num_agreed = len(item.row.cached)
            fed_items.append(item)
            if wants:
                drafting.append(item)
        if inputs:
            with self._watch.measure("forward"):
                logits = self._runner.forward(inputs)
            self._extend(drafting, logits)
            for index in self._runner.broken:  # of committed tokens: drafting again changes nothing
                self._rows.give_up(fed_items[index].row)
        return drafting

    def _extend(self, items: Sequence[_Drafting], logits: Tensor) -> None:
        """Draw the next draft of each row; logits [len(items), V]."""
        if not items:
            return
        positions = [Position(item.row.sampling, tuple(item.drafts)) for item in items]
        with self._watch.measure("sample"):
            if self._q_width:
                drawn, q = draw_with_q(logits, positions, self._q_width)
            else:
                drawn, q = draw(logits, positions), []
        for index, (item, token) in enumerate(zip(items, drawn, strict=True)):
            if token == BROKEN:
                item.is_broken = True
                continue
            imposed = replacement(
                self._kind,
                item.row,
                token,
                item.drafts,
                vocab_size=self._vocab_size,
                coin=_coin,
            )
            if self._q_width:  # a token that was not drawn is a proposal of its own: a delta
                item.q.append(q[index] if imposed is None else ((imposed,), (1.0,)))
            item.drafts.append(token if imposed is None else imposed)


def _coin(seed: int, position: int) -> float:
    return uniform_at(seed, position, Stream.SYNTHETIC)


def _drafted(item: _Drafting) -> DraftedRow:
    return DraftedRow(
        row_id=int(item.planned.row_id),
        base_len=item.planned.base_len,
        token_ids=tuple(item.drafts),
        q=tuple(item.q),
    )
